"""The numbers of one run: plain integers in memory, zero at every start (D-19, R-004-42)."""

from __future__ import annotations

from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement


class Counters:
    """What happened so far. Only the pump writes here, so nothing is locked.

    `nack` is what was requeued, retried, dead-lettered or rejected (R-004-41). `rejected` are dead letters
    left to the broker, of which nobody knows whether it keeps them (D-22). `stale` are results that came
    after their connection was gone, `ack_retry` verdicts the broker did not accept, `put_aside` dead letters
    that nobody can move, `sealed` messages passed on without being decrypted. `depth`, `held`,
    `unsettled`, `oldest` and `brake` are not sums but how it is now.
    """

    __slots__ = ("ack", "ack_retry", "brake", "dead_lettered", "depth", "dropped", "held", "inflight",
                 "nack", "notices", "oldest", "put_aside", "queued", "received", "reconnects", "rejected",
                 "requeued", "retried", "sealed", "stale", "states", "unsettled")  # fmt: skip

    def __init__(self) -> None:
        self.queued = 0
        self.received = 0
        self.ack = 0
        self.nack = 0
        self.requeued = 0
        self.retried = 0
        self.dead_lettered = 0
        self.rejected = 0
        self.dropped = 0
        self.ack_retry = 0
        self.put_aside = 0
        self.reconnects = 0
        self.inflight = 0
        self.stale = 0
        self.sealed = 0
        self.depth: int | None = None  # messages waiting at the broker, as it last said
        self.held = 0  # received, and waiting here for their turn or for their verdict
        self.unsettled = 0  # the syncer is done with them; their delay or the broker's word is to come
        self.oldest = 0.0  # seconds since the oldest running syncer was called; 0.0: none runs
        self.brake = ""  # why intake pauses, in a few words
        self.states: dict[str, int] = {}  # how often the consumer entered each (R-000-3)
        self.notices: dict[str, int] = {}  # what its transport reported, by the name of the event

    def __repr__(self) -> str:
        """What is not zero, and the three numbers that always matter."""
        always = ("received", "ack", "nack")
        told = [f"{name}={n}" for name, n in self.facts().items() if n or name in always]
        return f"Counters({', '.join(told)})"

    def entered(self, state: str) -> None:
        """The consumer moved to this state."""
        self.states[state] = self.states.get(state, 0) + 1

    def noticed(self, notice: Notice) -> None:
        """The transport reported this; a notice about several things says how many they are."""
        number = notice.facts.get("count", 1)
        self.notices[notice.event] = self.notices.get(notice.event, 0) + number

    def settled(self, settlement: Settlement) -> None:
        """Count what became of one delivery; a verdict counts only when it was carried out."""
        fate = settlement.fate
        if settlement.notes:  # the pipeline's only note: personal data left sealed
            self.sealed += 1
        if fate is Fate.DONE:
            action = settlement.verdict.action
            if action is Action.ACK:
                self.ack += 1
            elif action is Action.REQUEUE:
                self.requeued += 1
                self.nack += 1
            elif action is Action.RETRY:
                self.retried += 1
                self.nack += 1
            elif action is Action.DEAD_LETTER:
                self.dead_lettered += 1
                self.nack += 1
            elif action is Action.DROP:
                self.dropped += 1
        elif fate is Fate.REJECTED:
            self.rejected += 1
            self.nack += 1
        elif fate is Fate.STALE and settlement.verdict.action is not Action.LEAVE:
            self.stale += 1
        elif fate is Fate.FAILED:
            self.ack_retry += 1
        elif fate is Fate.ASIDE:
            self.put_aside += 1

    @property
    def handled(self) -> int:
        """Messages whose verdict was carried out."""
        return self.ack + self.nack + self.dropped

    @property
    def left(self) -> int:
        """How many are to be done, here and, as far as that is known, at the broker."""
        return (self.depth or 0) + self.inflight + self.held + self.unsettled

    def facts(self) -> dict[str, int]:
        """Every counter by its name, in the order a person reads them."""
        return {
            "queued": self.queued,
            "received": self.received,
            "ack": self.ack,
            "nack": self.nack,
            "requeued": self.requeued,
            "retried": self.retried,
            "dead_lettered": self.dead_lettered,
            "rejected": self.rejected,
            "dropped": self.dropped,
            "ack_retry": self.ack_retry,
            "put_aside": self.put_aside,
            "reconnects": self.reconnects,
            "inflight": self.inflight,
            "stale": self.stale,
            "sealed": self.sealed,
        }
