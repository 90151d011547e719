"""RabbitMQ: the wire's hot path, the consumer and the publisher, on pika's connection."""
