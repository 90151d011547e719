"""aio-pika's iterator over a queue: each message is checked and acked at once."""

import asyncio
import json
import os

import aio_pika


async def main() -> None:
    connection = await aio_pika.connect_robust(os.environ["BENCH_URL"])
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=2 * int(os.environ["BENCH_CONCURRENCY"]))
    queue = await channel.get_queue(os.environ["BENCH_QUEUE"])
    async with queue.iterator() as messages:
        async for incoming in messages:
            if json.loads(incoming.body)["schema"] != "proca:action:2":
                await incoming.reject(requeue=False)
            else:
                await incoming.ack()


asyncio.run(main())
