"""Kafka: a topic consumed in a group, with a queue's promises."""
