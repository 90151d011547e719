"""pika with a thread pool and add_callback_threadsafe: what everybody writes."""

import functools
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pika

CONCURRENCY = int(os.environ["BENCH_CONCURRENCY"])
WAIT = float(os.environ["BENCH_WAIT"])
CALL = None

if os.environ["BENCH_HTTP"]:
    import crm

    CALL = crm.Sync().post

connection = pika.BlockingConnection(pika.URLParameters(os.environ["BENCH_URL"]))
channel = connection.channel()
channel.basic_qos(prefetch_count=2 * CONCURRENCY)
pool = ThreadPoolExecutor(CONCURRENCY)


def work(tag: int, body: bytes) -> None:
    message = json.loads(body)
    good = message["schema"] == "proca:action:2"
    if good and WAIT:
        time.sleep(WAIT)
    if good and CALL:
        good = CALL(message)
    settle = (
        functools.partial(channel.basic_ack, tag)
        if good
        else functools.partial(channel.basic_reject, tag, requeue=False)
    )
    connection.add_callback_threadsafe(settle)


channel.basic_consume(
    os.environ["BENCH_QUEUE"],
    lambda _channel, method, _properties, body: pool.submit(work, method.delivery_tag, body),
)
channel.start_consuming()
