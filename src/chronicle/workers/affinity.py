"""Keeping worker threads on one CPU, where the system can (contention.py says when).

Rule 1: only the threads of the workers are kept there, and only as long as they have the pump; then they may
        use again what this process was given.
Rule 2: nobody inherits it for long: a program that a syncer starts may use all CPUs from its start, a thread
        that it starts as soon as the others may.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any, Final

STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})

_kept: dict[int, set[int]] = {}  # threads that are kept on one CPU, and which they may use otherwise


class Affinity:
    """The CPUs of these threads, which they choose among; `cpu` is the one they are kept on, if any."""

    def __init__(self, threads: Iterable[threading.Thread], cpus: set[int]) -> None:
        self.cpu: int | None = None
        self._threads = [thread.native_id for thread in threads if thread.native_id is not None]
        self._cpus = cpus

    def keep_on(self, cpu: int | None) -> None:
        """Keep the threads on this CPU; with None, let them use all again."""
        if cpu != self.cpu:
            self._let_go()
            if cpu is not None:
                self._keep_on(cpu)

    def _let_go(self) -> None:
        """Let the threads use all CPUs again, then those that they have started meanwhile."""
        if self.cpu is None:
            return
        one, self.cpu = {self.cpu}, None
        for thread in chain(self._threads, _all_threads()):  # looked for when the others have been let go
            _kept.pop(thread, None)
            with suppress(OSError):  # it has ended
                if os.sched_getaffinity(thread) == one:
                    os.sched_setaffinity(thread, self._cpus)

    def _keep_on(self, cpu: int) -> None:
        _watch_for_children()
        self.cpu = cpu
        for thread in self._threads:
            _kept[thread] = self._cpus
            with suppress(OSError):  # forbidden, or that CPU was taken away: the next pulse shows no gain
                os.sched_setaffinity(thread, {cpu})


def usable_cpus() -> set[int]:
    """What this process may use; nothing where that cannot be chosen."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()


def _all_threads() -> Iterator[int]:
    with suppress(OSError):  # no /proc, or no descriptor left to read it with
        yield from map(int, os.listdir("/proc/self/task"))


@cache
def _watch_for_children() -> None:
    """See to rule 2 from now on: a hook like this cannot be removed."""
    sys.addaudithook(_free_before_child)


def _free_before_child(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in STARTS and (cpus := _kept.pop(threading.get_native_id(), None)):
        with suppress(OSError):
            os.sched_setaffinity(0, cpus)
