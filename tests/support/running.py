"""The engine in a thread, for tests that do things to it meanwhile; nothing waits for it without an end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import Policy
from chronicle.core.settlement import Settlement
from chronicle.engine.job import Bounds, Ending, Job, Lifecycle, Limits, Objection, no_objection
from chronicle.engine.runner import Runner
from chronicle.telemetry.counters import Counters
from chronicle.transports.seam import Transport
from chronicle.workers.loader import look_at
from support.waiting import wait_for

PATIENCE: Final = 30.0


class Notebook:
    """An observer that keeps everything it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.settled_: list[Settlement] = []
        self.closed = 0

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        self.events.append((name, text, facts))

    def settled(self, batch: Sequence[Settlement]) -> None:
        self.settled_.extend(batch)

    def tick(self, counters: Counters) -> None: ...

    def close(self, counters: Counters) -> None:
        self.closed += 1

    def facts(self, name: str) -> list[dict[str, Any]]:
        return [facts for event, _, facts in self.events if event == name]

    def texts(self, name: str) -> list[str]:
        return [text for event, text, _ in self.events if event == name]


class Running:
    """A run under way. `ending` is how it ended, or its OperatorError is raised."""

    def __init__(
        self,
        syncer: Callable[..., Any],
        transport: Transport,
        *,
        policy: Policy | None = None,
        pipeline: Pipeline | None = None,
        concurrency: int = 1,
        prefetch: int = 2,
        bounds: Bounds | None = None,
        lifecycle: Lifecycle | None = None,
        limits: Limits | None = None,
        objection: Callable[[Ending], Objection | None] = no_objection,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.notebook = Notebook()
        self.job = Job(
            look_at(syncer, "my:syncer"),
            pipeline or Pipeline(Schema.RAW),
            policy or Policy(),
            concurrency,
            prefetch,
            bounds or Bounds(),
            lifecycle or Lifecycle(),
            limits or Limits(),
            objection,
        )
        self.runner = Runner(self.job, transport, self.notebook, clock=clock)
        self._ending: Ending | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._ending = self.runner.run()
        except BaseException as error:
            self._error = error

    def stop(self, reason: str = "the test is over") -> Ending:
        self.runner.stop(reason)
        return self.ending

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def ending(self) -> Ending:
        self._thread.join(PATIENCE)
        assert self.is_over, f"the run did not end in {PATIENCE:g} s"
        if self._error is not None:
            raise self._error
        assert self._ending is not None
        return self._ending

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        wait_for(condition, PATIENCE, what, every=0.002)


class Gate:
    """A syncer that waits until it is let through, on a thread or on the loop."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.started: list[bytes] = []
        self.ended: list[bytes] = []

    def sync(self, message: bytes) -> bool:
        self.started.append(message)
        self.free.wait(PATIENCE)
        self.ended.append(message)
        return True

    async def sync_async(self, message: bytes) -> bool:
        self.started.append(message)
        while not self.free.is_set():
            await asyncio.sleep(0.002)
        self.ended.append(message)
        return True
