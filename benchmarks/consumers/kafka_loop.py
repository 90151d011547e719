"""confluent-kafka and nothing around it: read some records, parse them, store their offsets.

It is what a group's member can reach from Python: one loop, no concurrency, no handler and no failures.
"""

import os

import orjson
from confluent_kafka import Consumer, KafkaException

TOPIC = os.environ["BENCH_QUEUE"]
AT_ONCE = 100

member = Consumer(
    {
        "bootstrap.servers": os.environ["BENCH_URL"].removeprefix("kafka://"),
        "group.id": f"chronicle.{TOPIC}",
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": 200,
        # A loop this fast would empty what was fetched ahead, and wait out the second that fetching rests.
        "fetch.queue.backoff.ms": 10,
    }
)
member.subscribe([TOPIC])
while True:
    for record in member.consume(AT_ONCE, timeout=0.1):
        if record.error() is not None:
            raise KafkaException(record.error())
        if orjson.loads(record.value())["schema"] != "proca:action:2":
            raise ValueError("unknown schema")
        member.store_offsets(record)
