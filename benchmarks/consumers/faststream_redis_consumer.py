"""FastStream at Redis: an async subscriber of a stream in a group; acked by the framework."""

import asyncio
import logging
import os
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.redis import RedisBroker, StreamSub

CONCURRENCY = int(os.environ["BENCH_CONCURRENCY"])

broker = RedisBroker(os.environ["BENCH_URL"], log_level=logging.DEBUG)
app = FastStream(broker)


@broker.subscriber(
    stream=StreamSub(
        os.environ["BENCH_QUEUE"],
        group="chronicle",
        consumer="faststream",
        max_records=2 * CONCURRENCY,
        polling_interval=1000,
    ),
    max_workers=CONCURRENCY,
    # What fails stays pending, so that a run with failures never ends.
    ack_policy=AckPolicy.NACK_ON_ERROR,
    no_reply=True,
)
async def handle(message: dict[str, Any]) -> None:
    if message["schema"] != "proca:action:2":
        raise ValueError("unknown schema")


asyncio.run(app.run(log_level=logging.WARNING))
