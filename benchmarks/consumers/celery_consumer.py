"""Celery: a task that gets the message as its argument, acked late; run by `celery --app celery_consumer`."""

import os
import time
from typing import Any

from celery import Celery
from kombu import Queue

WAIT = float(os.environ["BENCH_WAIT"])
CALL = None

if os.environ["BENCH_HTTP"]:
    import crm

    CALL = crm.Sync().post
QUEUE = os.environ["BENCH_QUEUE"]

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(
    task_queues=[Queue(QUEUE, no_declare=True)],
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=2,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="handle")
def handle(message: dict[str, Any]) -> None:
    if message["schema"] != "proca:action:2":
        raise ValueError("unknown schema")
    if WAIT:
        time.sleep(WAIT)
    if CALL and not CALL(message):
        raise RuntimeError("the server said no")
