"""A later try is logged when it is asked for, once; the log has the exit code of the process."""

from __future__ import annotations

from dataclasses import replace

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.engine.job import Bounds, Ending, Exit, Objection
from chronicle.errors import Retry
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.transports.memory import MemoryTransport
from support.running import Running
from support.samples import delivery
from support.scripted import PROMISES, ScriptedTransport

HOLDING = replace(PROMISES, delays=False)  # it cannot delay a message: chronicle holds it, as on RabbitMQ


class Later:
    """A syncer that asks for a later try the first time."""

    def __init__(self, after: float) -> None:
        self._after = after
        self.tries = 0

    def sync(self, message: bytes) -> bool:
        self.tries += 1
        if self.tries == 1:
            raise Retry(after=self._after)
        return True


def requeues(running: Running) -> list[Fate]:
    return [one.fate for one in running.notebook.settled_ if one.verdict.action is Action.REQUEUE]


def test_a_try_that_is_asked_for_is_told_long_before_it_is_due() -> None:
    transport = ScriptedTransport(b"0", promises=HOLDING)
    running = Running(Later(after=300.0).sync, transport)
    running.wait_for(lambda: requeues(running), "a line about the requeue")
    assert transport.fates(Action.REQUEUE) == []  # it waits here, unsettled
    assert running.notebook.settled_[0].verdict.delay == 300.0
    running.stop()
    assert transport.fates(Action.REQUEUE) == [0]  # a stop does not wait
    assert len(requeues(running)) == 1


def test_it_is_told_once_when_its_time_comes() -> None:
    transport = ScriptedTransport(b"0", promises=HOLDING)
    running = Running(Later(after=0.05).sync, transport)
    running.wait_for(lambda: transport.fates(Action.ACK), "the second try")
    ending = running.stop()
    assert len(requeues(running)) == 1
    assert ending.counters.requeued == 1


def test_what_a_lost_connection_takes_away_is_told_again() -> None:
    """It was told to come again after its time; that it comes at once is news."""
    transport = ScriptedTransport(b"0", promises=HOLDING)
    later = Later(after=300.0)
    running = Running(later.sync, transport)
    running.wait_for(lambda: requeues(running), "a line about the requeue")
    transport.lose()
    running.wait_for(lambda: transport.fates(Action.ACK), "its next try")
    running.stop()
    told = [one for one in running.notebook.settled_ if one.verdict.action is Action.REQUEUE]
    assert len(told) == 2
    assert told[-1].fate is Fate.FAILED


def test_an_objection_makes_a_good_end_a_failure_in_the_log_too() -> None:
    seen: list[Counters] = []

    def objection(ending: Ending) -> Objection:
        seen.append(ending.counters)
        return Objection("1 message failed")

    running = Running(
        lambda message: True,
        MemoryTransport([delivery(b"x")]),
        bounds=Bounds(until_empty=True),
        objection=objection,
    )
    ending = running.ending
    assert (ending.code, ending.reason) == (Exit.FATAL, "the queue is empty; 1 message failed")
    assert running.notebook.facts(events.STOPPED)[0]["exit_code"] == 1
    assert seen == [ending.counters]


def test_nobody_objects_to_what_is_no_success_anyway() -> None:
    def objection(_ending: Ending) -> Objection:
        raise AssertionError("nobody should ask")

    running = Running(lambda message: 1 / 0, ScriptedTransport(b"0"), objection=objection)
    assert running.ending.code is Exit.FATAL
