"""aio-pika: one task per message, bounded by a semaphore, acked one by one."""

import asyncio
import json
import os

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

CONCURRENCY = int(os.environ["BENCH_CONCURRENCY"])
WAIT = float(os.environ["BENCH_WAIT"])
CALL = None

if os.environ["BENCH_HTTP"]:
    import crm

    CALL = crm.Async().post


async def main() -> None:
    connection = await aio_pika.connect_robust(os.environ["BENCH_URL"])
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=2 * CONCURRENCY)
    queue = await channel.get_queue(os.environ["BENCH_QUEUE"])
    free = asyncio.Semaphore(CONCURRENCY)

    async def handle(incoming: AbstractIncomingMessage) -> None:
        async with free:
            message = json.loads(incoming.body)
            if message["schema"] != "proca:action:2":
                await incoming.reject(requeue=False)
                return
            if WAIT:
                await asyncio.sleep(WAIT)
            if CALL and not await CALL(message):
                await incoming.reject(requeue=False)
                return
            await incoming.ack()

    await queue.consume(handle)
    await asyncio.Event().wait()


asyncio.run(main())
