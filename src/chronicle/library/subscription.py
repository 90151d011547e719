"""`subscribe`: the messages of a queue in a loop of the program's own (R-003-14).

Rule 1: the run goes on beside the loop (background.py): heartbeats, reconnects, retries and dead letters are
        those of `run`, whatever the loop does or does not.
Rule 2: at most `prefetch` messages are unsettled. Whoever does not ask for the next one is given no more.
Rule 3: leaving the `with` block is an interruption: what is not settled goes back as it came, and counts as
        no failure.
Rule 4: nothing waits silently: a loop that asks for more while nothing of what it has is settled is told so,
        and so is one whose end waits for what it has not settled.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import Empty
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Invalid, Outcome
from chronicle.core.pipeline import Prepared
from chronicle.core.topology import QueueOptions
from chronicle.core.words import many, noun
from chronicle.engine.job import Ending, Exit
from chronicle.engine.runner import Runner
from chronicle.errors import InvalidMessage, SettingError, SubscriptionFailed
from chronicle.library.background import Background
from chronicle.library.event import Reporter
from chronicle.library.message import Message
from chronicle.library.plan import Place, labels_of, plan_subscription
from chronicle.library.routing_key import RoutingKey
from chronicle.library.values import check_instance, check_text, spelled_for_programs
from chronicle.telemetry import events
from chronicle.topology import policy_of
from chronicle.workers.handler import Handler
from chronicle.workers.hands import Hands, nobody

if TYPE_CHECKING:
    import asyncio

    from chronicle.library.options import SubscribeOptions

A = TypeVar("A")
FAIRNESS: Final = 64  # messages in a row before others on an event loop get a turn
PATIENCE: Final = 5.0  # seconds until a loop that waits for itself is told so
# A loop that is left gives back what it had not come to.
EVERYDAY: Final = frozenset({events.LEFT, events.STOPPED})
WAITS_FOR_ITSELF: Final = "subscription.all_unsettled"
END_WAITS: Final = "subscription.end_waits"


def subscribe(
    url: Place,
    queue: str,
    routing_key: RoutingKey[A],
    options: QueueOptions | None = None,
    **settings: Unpack[SubscribeOptions],
) -> Subscription[A]:
    """The messages of a queue, which is created with all it needs if it is not there (R-003-19).

        with subscribe(url, "orders", RoutingKey("order.*", Order), QueueOptions(exchange="shop")) as orders:
            for message in orders:
                ship(message.value)
                message.ack()

    `options` are the queue's own: its exchange, TTL, tries and dead letters. Everything else has the names
    that it has on the command line. Raises SettingError before it connects to anything.
    """
    with spelled_for_programs():
        check_text("queue", queue)
        check_instance("routing_key", RoutingKey, routing_key)
        if options is not None:
            check_instance("options", QueueOptions, options)
        options = _bound(queue, routing_key, options or QueueOptions())
        return Subscription(url, queue, routing_key, options, settings)


def _bound(queue: str, routing_key: RoutingKey[Any], options: QueueOptions) -> QueueOptions:
    """The options with the key of the binding, which is said once."""
    if options.routing_key not in ("", routing_key.key):
        raise SettingError("the routing key is given twice, and differs", "leave it out of the options")
    if not options.exchange:
        if routing_key.key not in ("", queue):
            raise SettingError(
                "a routing key without an exchange", "name the exchange in QueueOptions(exchange=…)"
            )
        return options
    return replace(options, routing_key=routing_key.key)


class Subscription(Generic[A]):
    """An iterator of messages, plain or async, inside its `with` or `async with` block."""

    def __init__(
        self,
        place: Place,
        queue: str,
        routing_key: RoutingKey[A],
        options: QueueOptions,
        settings: SubscribeOptions,
    ) -> None:
        job, transport = plan_subscription(
            place, queue, options, policy_of(options), routing_key.schema, settings
        )
        self._routing_key = routing_key
        self._hands = Hands(job.prefetch)
        self._handler = Handler(job.pipeline, job.policy, _nobody, takes_delivery=False)
        self._prefetch = job.prefetch
        self._bounds = job.bounds
        self._began = threading.Event()  # connected, or over
        labels = labels_of(transport, queue)
        self._tell = Reporter(settings.get("on_event"), labels, self._has_begun, EVERYDAY)
        self._run = Background(
            Runner(replace(job, make=self._hands.at), transport, self._tell), self._has_ended
        )
        self._entered = False
        self._told_to_settle = self._told_of_end = False
        self._came = 0.0  # when the last delivery did, monotonic
        self._in_a_row = 0
        self._bell: asyncio.Event
        self._ring: Callable[[], None] = nobody

    @property
    def ending(self) -> Ending | None:
        """How it ended, with its counters; None as long as it goes on."""
        return self._run.ending

    def stop(self, reason: str = "asked to stop") -> None:
        """Let the loop end after the message it has. From any thread."""
        self._hands.finish()
        self._run.stop(reason)

    # --- plain ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        try:
            self._began.wait()
        except BaseException:  # interrupted
            self._leave("interrupted")
            raise
        self._raise_if_failed()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._leave("the subscription was left")
        self._run.join()
        if kind is None:
            self._raise_if_failed()

    def __iter__(self) -> Self:
        self._check_entered()
        return self

    def __next__(self) -> Message[A]:
        while True:
            try:
                delivery = self._hands.take(PATIENCE)
            except Empty:
                self._look()
                continue
            if delivery is None:
                self._raise_if_failed()
                raise StopIteration
            message = self._opened(delivery)
            if message is not None:
                return message

    # --- async ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        import asyncio  # only those who use it wait for it

        loop = asyncio.get_running_loop()
        bell = self._bell = asyncio.Event()

        def ring() -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody listens
                loop.call_soon_threadsafe(bell.set)

        self._ring = self._hands.bell = ring
        self._enter()
        try:
            while not self._began.is_set():
                await self._rung()
        except BaseException:  # cancelled
            self._leave("cancelled")
            raise
        self._raise_if_failed()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._leave("the subscription was left")
        while not self._run.over:
            await self._rung()
        if kind is None:
            self._raise_if_failed()

    def __aiter__(self) -> Self:
        self._check_entered()
        return self

    async def __anext__(self) -> Message[A]:
        self._in_a_row += 1
        if self._in_a_row >= FAIRNESS:
            self._in_a_row = 0
            await self._pause()
        while True:
            try:
                delivery = self._hands.take_now()
            except Empty:
                delivery = await self._next_delivery()
            if delivery is None:
                self._raise_if_failed()
                raise StopAsyncIteration
            message = self._opened(delivery)
            if message is not None:
                return message

    async def _next_delivery(self) -> Delivery | None:
        self._in_a_row = 0
        with self._hands.asking():
            while True:
                try:
                    return self._hands.take_now()
                except Empty:
                    if not await self._rung():
                        self._look()

    async def _rung(self) -> bool:
        """Wait until the run has something for the loop; False if it takes long."""
        import asyncio

        try:
            # In Python 3.11 `wait_for` forgets that it was cancelled, if what it waits for has come by then.
            async with asyncio.timeout(PATIENCE):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True

    async def _pause(self) -> None:
        """Let others on the loop have their turn."""
        import asyncio

        await asyncio.sleep(0)

    # --- shared -----------------------------------------------------------------------------------------

    def _enter(self) -> None:
        if self._entered:
            raise RuntimeError("a subscription is entered once; subscribe again")
        self._entered = True
        self._run.start()

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError("iterate inside its block: `with subscribe(…) as messages:`")

    def _leave(self, reason: str) -> None:
        self._hands.close()
        self._run.stop(reason)

    def _has_begun(self) -> None:
        self._began.set()
        self._ring()

    def _has_ended(self) -> None:
        self._hands.end()
        self._has_begun()

    def _raise_if_failed(self) -> None:
        """Raise what ended it before its time, if something did."""
        if self._run.error is not None:
            raise self._run.error
        ending = self._run.ending
        if ending is not None and ending.code not in (Exit.DONE, Exit.RETURNED):
            raise SubscriptionFailed(ending.reason)

    def _opened(self, delivery: Delivery) -> Message[A] | None:
        """The message of a delivery; None if it was bad input."""
        started = perf_counter()
        self._came = monotonic()
        prepared = self._handler.prepare(delivery)
        outcome: Outcome
        if isinstance(prepared, Prepared):
            try:
                value = self._routing_key.decode(prepared.message)
                return Message(value, delivery, prepared, started, self._handler, self._hands)
            except InvalidMessage as error:
                outcome = Invalid(str(error))
        else:
            outcome = prepared
        self._hands.settle(self._handler.settlement(delivery, outcome, started))
        return None

    def _look(self) -> None:
        """Nothing has come for a while: if that is because nothing was settled, say so, once."""
        unsettled = self._hands.unsettled
        if unsettled >= self._prefetch and not self._told_to_settle:
            self._told_to_settle = True
            self._tell.event(
                WAITS_FOR_ITSELF,
                logging.WARNING,
                f"the next message was asked for, but all {self._prefetch} that were received are unsettled: "
                "settle one of them, or choose a larger prefetch",
            )
        bound = self._waiting_bound()
        if bound and 0 < unsettled < self._prefetch and not self._told_of_end:
            self._told_of_end = True
            are_not = f"{many(unsettled, 'message')} {noun(unsettled, 'is', 'are')} not"
            self._tell.event(
                END_WAITS,
                logging.WARNING,
                f"the next message was asked for and none comes, but {bound} does not end the loop before "
                f"what was received is settled: {are_not}",
                unsettled=unsettled,
            )

    def _waiting_bound(self) -> str:
        """The bound that would end the loop now, if nothing were unsettled."""
        if self._bounds.until_empty:
            return "until_empty"
        idle = self._bounds.idle_timeout
        return "idle_timeout" if idle is not None and monotonic() - self._came >= idle else ""


def _nobody(_message: object) -> bool:
    raise AssertionError("messages are handled by the program")
