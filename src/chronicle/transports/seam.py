"""Where a broker meets the engine.

Rule 1: one thread, the pump, calls a transport; only `wake` may be called from elsewhere.
Rule 2: no call waits for a syncer, and none waits longer than its timeout.
Rule 3: a transport never decides what becomes of a message. It carries verdicts out, in the epoch the
        delivery came from, or reports them as stale.
Rule 4: what a transport can promise is data (`Promises`), so that options it cannot honour are refused
        before the first message.
Rule 5: a transport moves its own machine. Its states and events are its own; the engine only calls verbs.
Rule 6: a transport may take back some of what it delivered while the connection lives (a partition moves to
        another consumer): it ends their leases. What no worker has begun comes back unrun, as LEAVE, with a
        later `settle`; the transport need not wait for it. What has begun finishes, and comes with ordinary
        calls of `settle`; the transport carries these out for a bounded time, and after it they are STALE. If
        it waits for them, it waits on a thread of its own, never inside a call of the engine: the results
        come from the thread that would be waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from chronicle.core.backoff import Backoff
from chronicle.core.deadletters.prospect import LetterTerms
from chronicle.core.delivery import Delivery
from chronicle.core.frozen import frozen
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.policy import OnExhausted, OnFailure, Policy
from chronicle.core.settlement import Settlement
from chronicle.errors import SettingError

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import QueueOptions


def never() -> bool:
    """Nobody wants to stop."""
    return False


def nothing() -> None:
    """There is nothing to do meanwhile."""


class DeadLetterKeeper(StrEnum):
    """Who keeps the dead letters of a queue."""

    TRANSPORT = "transport"  # the transport itself
    EITHER = "either"  # the transport if it can, else the broker; known once it is open
    BROKER = "broker"  # the broker's topology decides; it may be missing
    NOBODY = "nobody"  # there are none


@frozen
class Promises:
    """What a transport can honour."""

    transport: str
    settles: bool = True  # False: at most once, a delivery is gone when it arrives
    dead_letters: DeadLetterKeeper = DeadLetterKeeper.TRANSPORT
    delays: bool = False  # delays a requeued message by `verdict.delay` itself
    holds: float = float("inf")  # seconds: what is unsettled for longer, the broker takes back
    patience: float = float("inf")  # seconds: after so long with one message, the broker closes the channel
    retries: bool = True  # carries Action.RETRY out
    counts: bool = False  # `delivery.counted` is the broker's own count of tries
    late_results: bool = False  # what was received may still be settled after a reconnect
    requeues: bool = True  # False: it cannot take a message back for another try, which comes from memory
    parks: int = 0  # how many may wait here for their lane or their next try, beyond the prefetch window
    backoff: Backoff = field(default_factory=lambda: Backoff(0.25, 10.0))  # between reconnects (D-6)
    labels: Mapping[str, str] = field(default_factory=dict)  # stand in every log line, beside the queue
    title: str = ""  # in a sentence about what it cannot do, if `transport` says too much


def refuse_what_it_cannot(promises: Promises, policy: Policy, *, until_empty: bool = False) -> None:
    """Raise SettingError for a choice that this transport cannot honour."""
    who = promises.title or promises.transport
    chosen = [
        f"--{name.replace('_', '-')}"
        for name in ("on_failure", "on_invalid", "max_retries", "on_exhausted")
        if getattr(policy, name) != getattr(Policy(), name)
    ]
    if not promises.settles and chosen:
        raise SettingError(
            f"{chosen[0]} cannot be honoured by {who}: a message is gone when it arrives",
            "leave it out, or use a queue or a stream, which keeps messages until they are settled",
        )
    if not promises.settles and until_empty:
        raise SettingError(
            f"--until-empty cannot be honoured by {who}: nothing waits there, so nobody "
            "can say that it is empty",
            "end the run with --idle-timeout, --max-time or --max-messages",
        )
    if policy.on_failure is OnFailure.RETRY and not promises.retries:
        raise SettingError(
            f"--on-failure retry:{policy.max_attempts} cannot be honoured by {who}: there is "
            "no place where a message could wait for its next try",
            "choose requeue-once or dead-letter; in Python, a Connector may need retry_delays",
        )
    wants_dead_letters = (
        policy.on_failure is OnFailure.DEAD_LETTER or policy.on_exhausted is OnExhausted.DEAD_LETTER
    )
    if promises.dead_letters is DeadLetterKeeper.NOBODY and wants_dead_letters:
        asks = "--on-failure" if policy.on_failure is OnFailure.DEAD_LETTER else "--on-exhausted"
        raise SettingError(
            f"{asks} cannot be honoured by {who}: it keeps no dead letters",
            "leave it out",
        )
    if promises.dead_letters is DeadLetterKeeper.BROKER and needed_by(policy):
        raise SettingError(
            f"{needed_by(policy)} cannot be honoured when dead letters are left to the broker: in a retry "
            "loop a rejected message comes round again, for ever",
            "let chronicle keep them: leave out --dead-letters broker; or leave out --on-exhausted",
        )


def needed_by(policy: Policy) -> str:
    """The option for which the transport itself must keep dead letters, if there is one (D-22)."""
    return "--on-exhausted dead-letter" if policy.on_exhausted is OnExhausted.DEAD_LETTER else ""


@frozen
class Tls:
    """Files for a verified connection."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@frozen
class Connector:
    """How to reach a queue: the settings every transport is made from."""

    url: str = field(repr=False)
    queue: str
    prefetch: int = 2
    tag: str = "chronicle"
    tls: Tls = field(default_factory=Tls)
    extras: Mapping[str, str] = field(default_factory=dict, repr=False)
    choices: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of the broker's own options
    retry_delays: tuple[float, ...] = ()  # what Action.RETRY may ask for
    max_body: int | None = None  # a body far above this need not be read: it is rejected in any case (Z12)
    declare: QueueOptions | None = None  # create the topology when opening; None: only check (D-15)
    letters: LetterTerms = field(default_factory=LetterTerms)  # about dead letters (D-22)
    widens: bool = False  # at times `receive` is asked for more than the prefetch leaves, and should bring it
    must_exist: bool = False  # publish to no queue that is missing, where publishing would create it
    order: str = ""  # what is handled one after the other, as in core/order.py; "": as is usual here (D-23)


@frozen
class Outgoing:
    """A message to put on a queue."""

    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""  # where it was found, such as file and line, for errors about it


class Closing(StrEnum):
    """Why a transport is closed."""

    LOST = "lost"  # there is no connection, or none could be made; it may be opened again
    SETTLED = "settled"  # everything is settled
    DEADLINE = "deadline"  # the time to settle is over: do not wait for the broker


class Transport(Protocol):
    """One queue of one broker, as the engine sees it."""

    promises: Promises
    machine: Machine
    notices: deque[Notice]  # for the log; the engine takes them out every turn

    @property
    def place(self) -> str:
        """Host and vhost, file, or whatever identifies the broker; no secrets (R-000-18)."""

    @property
    def away(self) -> float:
        """For how many seconds the broker has been out of reach while the client reconnects by itself.

        0.0 when it is there, when the transport is closed, and where ConnectionLost is raised instead.
        """

    @property
    def unconfirmed(self) -> int:
        """Once it is closed: how many messages were settled here and the broker never confirmed it.

        They may come again. Only where verdicts are final before the broker knows of them there are any.
        """

    @property
    def depth(self) -> int | None:
        """How many messages wait at the broker, as it last said; those that are held here are not among them.

        None if nobody can tell. Reading it never raises and does not wait for a broker: it is a wish, and the
        turns to come may ask again, every few seconds at most.
        """

    def open(self, stopping: Callable[[], bool]) -> int | None:
        """Connect, check the queue, begin delivering; how many messages are waiting, if the broker says.

        Raises BrokerRefused (retrying is pointless), BrokerUnreachable, or ConnectionLost. Returns
        early, without having opened, when `stopping()` turns true.
        """

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        """Do the broker's I/O for one turn; at most `room` deliveries, waiting at most `timeout`.

        Heartbeats, closings and confirmations are served here even with no room. Raises ConnectionLost.
        """

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Begin to carry out these verdicts; all that became final since the last call, with their fate.

        A verdict that needs the broker's confirmation (a publish, a commit) becomes final in a later call.
        A delay is a number of seconds by now. LEAVE means that the delivery will not be handled here: it goes
        back as it came. What nobody can carry out comes back as ASIDE: it stays unsettled until the
        connection ends, and takes nobody's place. Raises ConnectionLost; what was not returned by then is
        still with the broker.

        This, `receive` and `stop` may also raise ClientFailed: the run is over. What can still be settled is:
        if one of them raises it once more, or ConnectionLost, the rest stays with the broker. A `settle` that
        raises it has taken the batch, and a later one returns what became final.
        """

    def is_empty(self) -> bool | None:
        """Whether the queue is empty now, if the broker says; costs no more for a long queue."""

    def stop(self, patience: float) -> None:
        """Take in nothing new; keep settling. Waits at most `patience` seconds for the broker's answer.

        Also called without a connection, and more than once.
        """

    def close(self, why: Closing = Closing.SETTLED) -> None:
        """Give back what was not settled, and disconnect. Never raises or waits long; may be called twice."""

    def wake(self) -> None:
        """End a wait in `receive`. Called from any thread."""

    def fileno(self) -> int | None:
        """A descriptor that is readable when `receive` has something to do; None if there is none."""


class Publisher(Protocol):
    """Puts messages on a queue."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        """Return when the broker has confirmed them all; raise if it did not accept one.

        `meanwhile` is called at least every quarter of a second as long as this waits; what it raises ends
        the wait. InvalidMessage says that one of them cannot be sent at all; then none of them was.
        """


class OnWorn(StrEnum):
    """What a reader does about a message that the broker will not hand out much more often."""

    LEAVE = "leave"
    REFUSE = "refuse"  # read no further
    REFRESH = "refresh"  # if it stays: publish it anew, see that confirmed, and remove the old one


@frozen
class Reading:
    """How a queue is to be read."""

    ahead: int | None = None  # fetch at most so many before they are asked for; None: as many as possible
    on_worn: OnWorn = OnWorn.LEAVE
    worn_after: int = 0  # deliveries, at a broker that counts them and drops a message beyond a limit


class Reader(Protocol):
    """What waited in a queue when it was opened: read once, in the queue's order, and left there.

    What was removed is gone; everything else is in the queue afterwards as it was, whatever becomes of this
    process. What is published meanwhile is not read. It may be opened again when it is closed, and then
    reads what is there by then. One thread calls it; only `wake` may be called from elsewhere.
    """

    transport: str  # the broker's kind, for the log
    notices: deque[Notice]  # what it did beside reading; whoever uses it tells them
    # How many there were at the start, at most: `read` says when that was all, and may have found fewer.
    present: int
    moves: bool  # `move` works; otherwise publish, wait for the confirmation, and remove

    @property
    def place(self) -> str:
        """As of a Transport."""

    def open(self, stopping: Callable[[], bool]) -> None:
        """Connect, and see what is there.

        Raises BrokerRefused (no use in trying again), BrokerUnreachable, or ConnectionLost. Returns early,
        with nothing to read, when `stopping()` turns true.
        """

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None:
        """At most `room` further ones, perhaps none yet; None when that was all. Raises ConnectionLost.

        Waits at most `timeout`. What is held by others, or kept back, is waited for for a few seconds.
        """

    def remove(self, batch: Sequence[Delivery]) -> None:
        """Take these, read since it was opened, out of the queue.

        Raises ConnectionLost when that is in doubt: then some of them may still be there.
        """

    def move(self, batch: Sequence[tuple[Delivery, Outgoing]], queue: str) -> Sequence[Delivery]:
        """Take these, read since it was opened, out of the queue, and put the messages on another, or at the
        end of the same: in one step, so that nothing is ever in both or in neither.

        Returns those of the deliveries that it moved; the others were gone already. Raises BrokerRefused when
        that queue takes none of them, InvalidMessage when one of them cannot be sent at all, and then none
        was moved; ConnectionLost when it is in doubt which were.
        """

    def serve(self, timeout: float = 0.0) -> None:
        """Keep the connections alive for so long and take nothing in. Raises ConnectionLost."""

    def stop(self, patience: float) -> None:
        """Fetch nothing more; what was read can still be removed. Raises ConnectionLost.

        Waits at most `patience` seconds for the broker's answer. Also called without a connection, and more
        than once.
        """

    def close(self, why: Closing = Closing.SETTLED) -> None:
        """Leave the rest as it was, and let go; never waits long. May be called twice.

        Raises a ChronicleError only when SETTLED and something that stays could not be refreshed.
        """

    def wake(self) -> None:
        """End a wait in `read` or `serve`. Called from any thread."""
