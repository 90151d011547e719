"""FastStream: an async subscriber that gets the parsed message; acked by the framework."""

import asyncio
import logging
import os
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

CONCURRENCY = int(os.environ["BENCH_CONCURRENCY"])
WAIT = float(os.environ["BENCH_WAIT"])
CALL = None

if os.environ["BENCH_HTTP"]:
    import crm

    CALL = crm.Async().post

broker = RabbitBroker(os.environ["BENCH_URL"], log_level=logging.DEBUG)
app = FastStream(broker)
free = asyncio.Semaphore(CONCURRENCY)


@broker.subscriber(
    RabbitQueue(os.environ["BENCH_QUEUE"], declare=False),
    channel=Channel(prefetch_count=2 * CONCURRENCY),
    ack_policy=AckPolicy.REJECT_ON_ERROR,
    no_reply=True,
)
async def handle(message: dict[str, Any]) -> None:
    async with free:
        if message["schema"] != "proca:action:2":
            raise ValueError("unknown schema")
        if WAIT:
            await asyncio.sleep(WAIT)
        if CALL and not await CALL(message):
            raise RuntimeError("the server said no")


asyncio.run(app.run(log_level=logging.WARNING))
