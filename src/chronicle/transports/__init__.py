"""The brokers. Only these rooms import pika, confluent_kafka, redis and sqlite3, and only when needed."""
