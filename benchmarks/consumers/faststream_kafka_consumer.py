"""FastStream at Kafka, with its confluent backend: an async subscriber of a topic in a group.

Its argument says when a message counts as done, and with that how many are handled at once: FastStream
refuses more than one worker unless offsets are committed first.
    first   as many workers as asked for; the client commits what it has handed out, handled or not
    after   one message after the other, each followed by a commit
"""

import asyncio
import logging
import os
import sys
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

CONCURRENCY = int(os.environ["BENCH_CONCURRENCY"])
TOPIC = os.environ["BENCH_QUEUE"]
ACKS_FIRST = sys.argv[1] == "first"

broker = KafkaBroker(os.environ["BENCH_URL"].removeprefix("kafka://"), log_level=logging.DEBUG)
app = FastStream(broker)


@broker.subscriber(
    TOPIC,
    group_id=f"chronicle.{TOPIC}",
    auto_offset_reset="earliest",
    auto_commit_interval_ms=200,
    max_workers=CONCURRENCY if ACKS_FIRST else 1,
    ack_policy=AckPolicy.ACK_FIRST if ACKS_FIRST else AckPolicy.NACK_ON_ERROR,
    no_reply=True,
)
async def handle(message: dict[str, Any]) -> None:
    if message["schema"] != "proca:action:2":
        # An exception is logged and, where offsets are committed first, forgotten: the run would count.
        os._exit(1)


asyncio.run(app.run(log_level=logging.WARNING))
