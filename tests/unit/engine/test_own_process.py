"""What a run changes in its process: nothing that outlasts it, and nothing where it is not alone."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from chronicle.engine.job import Job, own_process
from chronicle.workers.loader import look_at
from chronicle.workers.mailbox import Mailbox


def _now() -> tuple[Any, ...]:
    return gc.get_threshold(), threading.excepthook


@pytest.mark.parametrize("alone", [True, False])
def test_a_process_of_its_own_is_tuned_and_watched_as_long_as_it_runs(alone: bool) -> None:
    before = _now()
    job = Job(look_at(lambda _message: True, "sync"), concurrency=500, alone=alone)
    with own_process(job, Mailbox(lambda: None)):
        changed = [now != then for now, then in zip(_now(), before, strict=True)]
        assert changed == [alone, alone]
    assert _now() == before
