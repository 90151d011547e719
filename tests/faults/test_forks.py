"""A syncer that forks, and whose child comes back from the call: there are two of everything then."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import samples
from support.fixtures import Broker, StartChronicle
from support.stage import Stage, counted


def test_a_forked_child_ends_with_the_code_it_asks_for(
    rabbit: Broker, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """`sys.exit(0)` at the end of a child is what many write, and its parent waits for that 0."""
    stage = Stage(rabbit, chronicle, tmp_path)
    stage.publish(samples.body("action-plain.json"))
    process = stage.consume("forks_and_exits")
    assert process.returncode == 0
    assert counted(process) == {"received": 1, "ack": 1}


@pytest.mark.parametrize("syncer", ["forks", "async_forks"])
def test_a_forked_child_settles_nothing(
    rabbit: Broker, chronicle: StartChronicle, tmp_path: Path, syncer: str
) -> None:
    """The first promise: what the parent has not handled is not acknowledged by its copy."""
    stage = Stage(rabbit, chronicle, tmp_path, moved=True)
    stage.publish(samples.body("action-plain.json"))
    process = stage.consume(syncer, "--on-failure", "dead-letter")
    assert process.returncode == 0
    assert counted(process) == {"received": 1, "nack": 1, "dead_lettered": 1}
    assert process.lines("message.acked") == []
    assert len(stage.dead_letters(1)) == 1
