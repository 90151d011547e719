"""dramatiq: an actor that gets the message as its argument; run by `dramatiq dramatiq_consumer`."""

import os
import time
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

WAIT = float(os.environ["BENCH_WAIT"])
CALL = None

if os.environ["BENCH_HTTP"]:
    import crm

    CALL = crm.Sync().post

dramatiq.set_broker(RabbitmqBroker(url=os.environ["BENCH_URL"]))


@dramatiq.actor(queue_name=os.environ["BENCH_QUEUE"], max_retries=0)
def handle(message: dict[str, Any]) -> None:
    if message["schema"] != "proca:action:2":
        raise ValueError("unknown schema")
    if WAIT:
        time.sleep(WAIT)
    if CALL and not CALL(message):
        raise RuntimeError("the server said no")
