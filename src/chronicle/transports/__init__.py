"""The brokers. Only these packages import pika, confluent_kafka, redis and sqlite3, and only when needed."""
