"""The pump and its connection: refusals, absences, losses, and results that come too late."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Settlement
from chronicle.engine.job import Bounds, Exit, Lifecycle
from chronicle.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ProtocolFault,
    SettingError,
)
from chronicle.telemetry import events
from chronicle.transports.memory import MemoryTransport
from chronicle.transports.seam import Promises
from support.running import PATIENCE, Gate, Running
from support.scripted import ScriptedTransport

UNTIL_EMPTY = Bounds(until_empty=True)
AWAY = BrokerUnreachable("nobody answers")


def yes(message: bytes) -> bool:
    return True


def bodies(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


class TestConnecting:
    def test_D_9_what_the_broker_refuses_at_the_start_is_raised(self) -> None:
        transport = ScriptedTransport()
        transport.refusals.append(BrokerRefused("no queue 'q'", "declare it"))
        with pytest.raises(BrokerRefused, match="no queue 'q'"):
            _ = Running(yes, transport).ending
        assert transport.opened == 1

    def test_D_9_a_syncer_that_fails_to_close_does_not_hide_the_refusal(self) -> None:
        class Crm:
            def __enter__(self) -> None: ...

            def __exit__(self, *exc: object) -> None:
                raise OSError

            def __call__(self, message: bytes) -> bool:
                return True

        transport = ScriptedTransport()
        transport.refusals.append(BrokerRefused("no queue 'q'", "declare it"))
        with pytest.raises(BrokerRefused, match="no queue 'q'"):
            _ = Running(Crm, transport).ending

    def test_no_syncer_starts_on_what_a_failure_cuts_off(self) -> None:
        """A transport that fails in the middle: nobody would settle what was received before."""
        gate = Gate()

        class Failing(MemoryTransport):
            def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
                if gate.started:
                    raise SettingError("it cannot be read any further")
                return super().receive(room, min(timeout, 0.01))

        def sync(message: bytes) -> bool:
            return message == b"0" or gate.sync(message)

        source = [Delivery(content, queue="q", transport="memory") for content in bodies(3)]
        running = Running(sync, Failing(source), prefetch=3)
        with pytest.raises(SettingError, match="any further"):
            _ = running.ending
        gate.free.set()
        assert gate.started == [b"1"]

    @pytest.mark.parametrize("prefetch", [1, 2, 3, 100])
    def test_what_stands_before_a_damaged_line_is_handled(self, prefetch: int) -> None:
        """However far was read ahead, and further tries too: the error comes after all that."""
        started: list[bytes] = []

        def sync(message: bytes) -> bool:
            started.append(message)
            return message != b"1"

        def source() -> Iterator[Delivery]:
            for content in bodies(5):
                yield Delivery(content, queue="q", transport="memory")
            raise SettingError("capture.jsonl, line 6: a damaged record")

        dead: list[Settlement] = []
        transport = MemoryTransport(source(), on_dead_letter=dead.append)
        with pytest.raises(SettingError, match="line 6"):
            _ = Running(sync, transport, prefetch=prefetch, bounds=UNTIL_EMPTY).ending
        assert sorted(started) == [b"0", b"1", b"1", b"2", b"3", b"4"]
        assert [settlement.delivery.body for settlement in dead] == [b"1"]

    def test_D_9_once_connected_a_refusal_is_waited_out(self) -> None:
        """A queue that is deleted and made again, a permission taken and given."""
        transport = ScriptedTransport(b"1")
        running = Running(yes, transport)
        running.wait_for(lambda: transport.carried, "the first message")
        transport.refusals.extend([BrokerRefused("no queue 'q'", "declare it")] * 3)
        transport.lose()
        running.wait_for(lambda: not transport.refusals, "three refusals")
        transport.publish(b"2")
        running.wait_for(lambda: len(transport.carried) == 2, "the second message")
        assert running.stop().code is Exit.DONE
        assert running.notebook.texts(events.RETRY)[0].startswith("no queue 'q'; trying again in ")

    def test_D_9_startup_timeout(self) -> None:
        transport = ScriptedTransport()
        transport.unreachable = AWAY
        running = Running(yes, transport, lifecycle=Lifecycle(startup_timeout=0.5))
        ending = running.ending
        assert ending.code is Exit.UNREACHABLE
        assert ending.remedy == "check that it is running, and the host and port in the URL"
        assert running.notebook.facts(events.STOPPED)[0]["remedy"] == ending.remedy
        assert ending.reason == f"nobody answers; given up after {transport.opened} tries"
        assert transport.opened > 1

    def test_a_broker_that_is_late_is_waited_for(self) -> None:
        transport = ScriptedTransport(*bodies(2))
        transport.refusals.extend([BrokerUnreachable("nobody answers")] * 3)
        running = Running(yes, transport, bounds=UNTIL_EMPTY)
        assert running.ending.counters.ack == 2
        assert running.notebook.facts(events.READY)[0]["connect_attempts"] == 4

    def test_give_up_after(self) -> None:
        transport = ScriptedTransport(b"1")
        running = Running(yes, transport, lifecycle=Lifecycle(give_up_after=0.05))
        running.wait_for(lambda: transport.carried, "the first message")
        transport.unreachable = AWAY
        transport.lose()
        assert running.ending.code is Exit.UNREACHABLE

    def test_a_stop_ends_the_wait_for_a_broker(self) -> None:
        transport = ScriptedTransport()
        transport.unreachable = AWAY
        lifecycle = Lifecycle(startup_timeout=0, backoff=Backoff(3600, 3600))
        running = Running(yes, transport, lifecycle=lifecycle)
        running.wait_for(lambda: running.notebook.facts(events.RETRY), "a failed try")
        assert running.stop("SIGTERM").code is Exit.DONE

    def test_RB13_unreadable_again_and_again_is_fatal(self) -> None:
        class Garbled(ScriptedTransport):
            def receive(self, room: int, timeout: float) -> Any:
                raise ProtocolFault("frame of type 99")

        transport = Garbled(b"1")
        ending = Running(yes, transport).ending
        assert ending.code is Exit.FATAL
        assert ending.reason == "frame of type 99; the same again after every reconnect"
        assert len(transport.queue) == 1

    def test_R_004_39_the_depth_at_the_start_is_counted_once(self) -> None:
        transport = ScriptedTransport(*bodies(3))
        running = Running(yes, transport)
        running.wait_for(lambda: len(transport.carried) == 3, "three messages")
        transport.lose()
        running.wait_for(lambda: transport.opened == 2, "the reconnect")
        assert running.stop().counters.queued == 3
        assert [facts["queued"] for facts in running.notebook.facts(events.READY)] == [3, 0]


class TestLost:
    @pytest.mark.parametrize("form", ["sync", "sync_async"])
    def test_RB2_a_late_result_is_settled_nowhere_and_the_message_comes_again(self, form: str) -> None:
        gate = Gate()
        transport = ScriptedTransport(*bodies(2))
        running = Running(getattr(gate, form), transport, concurrency=1, prefetch=2)
        running.wait_for(lambda: gate.started == [b"0"], "the first")
        transport.lose()
        running.wait_for(lambda: transport.opened == 2, "the reconnect")
        gate.free.set()
        running.wait_for(lambda: len(transport.carried) == 2, "both")
        ending = running.stop()
        assert transport.fates(Action.ACK) == [0, 1]
        assert gate.started == [b"0", b"0", b"1"], "the second was thrown away before it started"
        assert (ending.counters.stale, ending.counters.reconnects) == (1, 1)
        assert all(carried.epoch == carried.handle.epoch for carried in transport.carried)

    def test_R_000_42_a_verdict_the_broker_never_got(self) -> None:
        """The connection breaks while settling: counted, and the message comes again."""

        class Deaf(ScriptedTransport):
            def settle(self, work: Any) -> Any:
                if work and self.opened == 1:
                    self.lose()
                return super().settle(work)

        transport = Deaf(b"1")
        ending = Running(yes, transport, bounds=UNTIL_EMPTY).ending
        assert (ending.counters.ack, ending.counters.ack_retry, ending.counters.reconnects) == (1, 1, 1)
        assert ending.counters.received == 2

    def test_D_6_RB19_a_delivery_is_no_progress(self) -> None:
        """A broker that hands out and takes no ack is not asked again and again without a pause."""

        class Deaf(ScriptedTransport):
            def settle(self, work: Any) -> Any:
                if work and self.opened <= 4:
                    self.lose()
                return super().settle(work)

        waits: list[float] = []

        class Growing(Backoff):
            def delay(self, attempt: int, luck: float) -> float:
                waits.append(self.ceiling(attempt))
                return 0.0

        transport = Deaf(b"1", promises=Promises("scripted", backoff=Growing(1.0, 60.0)))
        assert Running(yes, transport, bounds=UNTIL_EMPTY).ending.counters.ack == 1
        assert waits == [1, 2, 4, 8]

    def test_a_fatal_result_from_a_lost_connection_ends_the_run_too(self) -> None:
        free, started = threading.Event(), threading.Event()

        def sync(message: bytes) -> bool:
            started.set()
            free.wait(PATIENCE)
            raise ValueError

        transport = ScriptedTransport(b"1")
        running = Running(sync, transport)
        assert started.wait(PATIENCE)
        transport.unreachable = AWAY
        transport.lose()
        running.wait_for(lambda: running.notebook.facts(events.RETRY), "the broker to stay away")
        free.set()
        assert running.ending.code is Exit.FATAL
        assert len(transport.queue) == 1
