"""The embedded queue against a plain model of it: whatever happens, the same messages in the same state."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from conformance.harness import opened, settle, verdict

CONSUMERS = 2


@dataclass(slots=True)
class Known:
    """What the model knows of one message."""

    number: int
    tries: int = 0
    redelivered: bool = False
    holder: int | None = None
    due: float = 0.0


class LocalQueue(RuleBasedStateMachine):
    """Two consumers on one file, with a clock that only the test moves."""

    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.folder = Path(tempfile.mkdtemp())
        self.file = self.folder / "queue.db"
        self.sent = 0
        self.waiting: dict[int, Known] = {}
        self.dead: set[int] = set()
        self.acked: set[int] = set()
        self.hands: list[dict[int, Delivery]] = [{} for _ in range(CONSUMERS)]
        self.stale: list[Delivery] = []
        self.publish(0)
        self.consumers = [self.consumer() for _ in range(CONSUMERS)]

    def consumer(self, queue: str = "q") -> LocalTransport:
        transport = LocalTransport(Connector(f"local:{self.file}", queue), clock=lambda: self.now)
        opened(transport)
        return transport

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        with LocalPublisher(Connector(f"local:{self.file}", "q"), clock=lambda: self.now) as publisher:
            publisher.publish([Outgoing(b"%d" % number) for number in numbers])
        self.sent += count
        self.waiting |= {number: Known(number) for number in numbers}

    @rule(who=st.integers(0, CONSUMERS - 1), room=st.integers(1, 5))
    def claim(self, who: int, room: int) -> None:
        free = [known for known in self.waiting.values() if known.holder is None and known.due <= self.now]
        expected = sorted(free, key=lambda known: known.number)
        # Of many that are due at once only so many are let in at a time: the oldest of those, not of all.
        batch = self.consumers[who].receive(room, 0)
        got = [self.waiting[int(delivery.body)] for delivery in batch]
        assert len(got) == min(room, len(free))
        assert {known.number for known in got} <= {known.number for known in free}
        if all(known.due == 0.0 for known in free):
            assert got == expected[: len(got)]
        for known, delivery in zip(got, batch, strict=True):
            assert (delivery.redelivered, delivery.counted) == (known.redelivered, known.tries)
            known.holder, known.due = who, 0.0
            self.hands[who][known.number] = delivery

    @precondition(lambda self: any(self.hands))
    @rule(data=st.data(), action=st.sampled_from(Action), delay=st.sampled_from([0.0, 5.0]))
    def settle(self, data: st.DataObject, action: Action, delay: float) -> None:
        who = data.draw(st.sampled_from([who for who in range(CONSUMERS) if self.hands[who]]))
        number = data.draw(st.sampled_from(sorted(self.hands[who])))
        delivery = self.hands[who][number]
        assert settle(self.consumers[who], verdict(delivery, action, delay)) == [Fate.DONE]
        if action is Action.LEAVE:
            return
        self.stale.append(self.hands[who].pop(number))
        known = self.waiting[number]
        known.holder = None
        match action:
            case Action.REQUEUE | Action.RETRY:
                known.tries += 1
                known.redelivered = True
                known.due = self.now + delay if delay else 0.0
            case Action.DEAD_LETTER:
                self.dead.add(self.waiting.pop(number).number)
            case _:
                self.acked.add(self.waiting.pop(number).number)

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), who=st.integers(0, CONSUMERS - 1), action=st.sampled_from(Action))
    def settle_too_late(self, data: st.DataObject, who: int, action: Action) -> None:
        delivery = data.draw(st.sampled_from(self.stale))
        fates = settle(self.consumers[who], verdict(delivery, action))
        assert fates == [Fate.STALE] or action is Action.LEAVE

    @rule(who=st.integers(0, CONSUMERS - 1))
    def kill(self, who: int) -> None:
        """As the kernel leaves it: connection and lock gone, nothing tidied up. Another takes its place."""
        victim = self.consumers[who]
        assert victim._store is not None
        assert victim._owner is not None
        victim._store.close()
        victim._owner.drop()
        victim._store = victim._owner = None
        self.consumers[who] = self.consumer()
        for number, delivery in self.hands[who].items():
            known = self.waiting[number]
            known.holder, known.redelivered, known.tries = None, True, known.tries + 1
            self.stale.append(delivery)
        self.hands[who].clear()

    @rule(who=st.integers(0, CONSUMERS - 1))
    def reopen(self, who: int) -> None:
        self.consumers[who].close()
        opened(self.consumers[who])
        for number, delivery in self.hands[who].items():
            self.waiting[number].holder = None
            self.stale.append(delivery)
        self.hands[who].clear()

    @rule(seconds=st.sampled_from([1.0, 5.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        free = sum(known.holder is None for known in self.waiting.values())
        for consumer in self.consumers:
            assert consumer.is_empty() is (free == 0)
        assert len(self.waiting) + len(self.dead) + len(self.acked) == self.sent

    def teardown(self) -> None:
        if not hasattr(self, "consumers"):
            return
        for consumer in self.consumers:
            consumer.close()
        self.now += 1000
        left = self.consumer()
        assert {int(d.body) for d in left.receive(10_000, 0)} == set(self.waiting)
        left.close()
        if self.dead:
            letters = self.consumer("q.dlq")
            assert {int(d.body) for d in letters.receive(10_000, 0)} == self.dead
            letters.close()
        shutil.rmtree(self.folder)


TestLocalQueue = LocalQueue.TestCase
TestLocalQueue.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
