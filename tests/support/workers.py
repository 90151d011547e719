"""Workers and their mailbox without a pump: what a test gives them, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chronicle.core.delivery import Delivery
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import Policy
from chronicle.core.settlement import Settlement
from chronicle.workers.base import Workers, make_workers
from chronicle.workers.loader import look_at
from chronicle.workers.mailbox import Mailbox
from chronicle.workers.turns import TurnTaking
from support.waiting import wait_for

PATIENCE = 30.0  # for what comes at once unless the machine is very busy


def deliveries(count: int, first: int = 0) -> list[Delivery]:
    return [Delivery(str(n).encode(), queue="q", transport="t") for n in range(first, first + count)]


def make(syncer: Any, mailbox: Mailbox, concurrency: int = 1) -> Workers:
    return make_workers(look_at(syncer, "my:syncer"), Pipeline(Schema.RAW), Policy(), concurrency, mailbox)


def make_mailbox() -> Mailbox:
    return Mailbox(lambda: None)


@contextmanager
def working(syncer: Any, concurrency: int = 1) -> Iterator[tuple[Workers, Mailbox]]:
    mailbox = make_mailbox()
    workers = make(syncer, mailbox, concurrency)
    workers.start()
    yield workers, mailbox
    assert workers.stop(PATIENCE)


def collect(source: Mailbox | TurnTaking, count: int) -> list[Settlement]:
    """So many results, from wherever they are taken."""
    done: list[Settlement] = []

    def enough() -> bool:
        done.extend(source.take())
        return len(done) >= count

    wait_for(enough, PATIENCE, f"{count} results", every=0.001)
    return done
