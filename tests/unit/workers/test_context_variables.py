"""Context variables: what a call sets is gone when the next one begins, on threads and on the loop."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from support.workers import collect, deliveries, working

WHO: ContextVar[str] = ContextVar("who", default="nobody")
OWN = "set when the syncer was entered"


class Plain:
    seen: list[str]

    def __enter__(self) -> None:
        WHO.set(OWN)
        type(self).seen = []

    def __exit__(self, *exc: object) -> None: ...

    def __call__(self, message: bytes) -> bool:
        self.seen.append(WHO.get())
        WHO.set(message.decode())
        return True


class OnLoop:
    seen: list[str]

    async def __aenter__(self) -> None:
        WHO.set(OWN)
        type(self).seen = []

    async def __aexit__(self, *exc: object) -> None: ...

    async def __call__(self, message: bytes) -> bool:
        self.seen.append(WHO.get())
        WHO.set(message.decode())
        await asyncio.sleep(0)
        assert WHO.get() == message.decode()
        return True


@pytest.mark.parametrize("kind", [Plain, OnLoop])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_call_does_not_see_what_an_earlier_one_set(kind: type[Plain | OnLoop], concurrency: int) -> None:
    with working(kind, concurrency) as (workers, mailbox):
        workers.submit(deliveries(20))
        collect(mailbox, 20)
    assert kind.seen == [OWN] * 20


def test_a_task_whose_context_was_put_back_goes_on() -> None:
    """Libraries set and reset a variable around every call: that must not cost a task each time."""
    tasks: set[str | int] = set()

    async def tidy(message: bytes) -> bool:
        WHO.reset(WHO.set("x"))
        tasks.add(id(asyncio.current_task()))
        return True

    with working(tidy) as (workers, mailbox):
        workers.submit(deliveries(20))
        collect(mailbox, 20)
    assert len(tasks) == 1
