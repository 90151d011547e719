"""chronicle's subscription, a plain or an async loop: each message is checked and acked at once."""

import asyncio
import os
import sys

from chronicle import Disabled, QueueOptions, RetryPolicy, RoutingKey, subscribe

QUEUE = os.environ["BENCH_QUEUE"]
# The queue is there, and has neither dead letters nor retry queues.
PLAIN = QueueOptions(retry=RetryPolicy.NONE, dead_letter=Disabled())


def subscription():
    window = 2 * int(os.environ["BENCH_CONCURRENCY"])
    key = RoutingKey(QUEUE, dict)
    return subscribe(os.environ["BENCH_URL"], QUEUE, key, PLAIN, schema="proca", prefetch=window)


def plain() -> None:
    with subscription() as messages:
        for message in messages:
            message.ack()


async def beside() -> None:
    async with subscription() as messages:
        async for message in messages:
            message.ack()


if sys.argv[1] == "async":
    asyncio.run(beside())
else:
    plain()
