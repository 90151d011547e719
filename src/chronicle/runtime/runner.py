"""The pump: the one thread that owns the transport, the machine and the counters.

Rule 1: every turn takes finished work from the mailbox, settles it, then lets the broker speak. No call in
        here waits for a syncer.
Rule 2: what was received on a lost connection is the broker's again: what no worker has started is thrown
        away, what is running may finish, and its late result is settled nowhere.
Rule 3: a drain finishes what was received; a fatal exit leaves the culprit and does not wait for anybody
        longer than a moment; what stays unfinished is named in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import random
from time import monotonic

from chronicle.core.delivery import Delivery
from chronicle.core.machine import Event
from chronicle.core.outcome import Action, Fatal, Interrupted, Invalid, Verdict
from chronicle.core.settlement import Settlement
from chronicle.errors import (
    BrokerError,
    BrokerRefused,
    ChronicleError,
    ConnectionLost,
    OperatorError,
    ProtocolFault,
)
from chronicle.runtime.handling import Handling
from chronicle.runtime.job import Ending, Exit, Job
from chronicle.runtime.shelf import Shelf
from chronicle.runtime.workers import Mailbox, make_workers, watch_other_threads
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer
from chronicle.telemetry.masks import trace_of
from chronicle.transports.seam import Transport
from chronicle.transports.waker import Waker

TURN = 0.25  # the longest the pump sleeps, so the coarsest any deadline is kept
FATAL_GRACE = 2.0  # how long others may finish after a fatal outcome (X4)
LEAVING = 1.0  # how long a syncer's context may take to close when work is stuck
HEALTHY = 10.0  # a connection that lived so long, or delivered, resets the backoff (RB19)
FAULT_LIMIT = 5  # so many unreadable answers in a row, and no delivery between them
SEALED_LIMIT = 20  # so many messages in a row that could not be opened: the key store is wrong (Z7)


class Runner:
    """Runs one job over one transport until it is told to stop, is done, or cannot go on."""

    def __init__(
        self,
        job: Job,
        transport: Transport,
        observer: Observer,
        *,
        clock: Callable[[], float] = monotonic,
        luck: Callable[[], float] = random,
    ) -> None:
        self.counters = Counters()
        self._job = job
        self._transport = transport
        self._observer = observer
        self._clock = clock
        self._luck = luck
        self._backoff = job.lifecycle.backoff or transport.promises.backoff
        self._waker = Waker()
        self._mailbox = Mailbox(transport.wake)
        self._workers = make_workers(
            job.syncer,
            lambda call: Handling(job.pipeline, job.policy, call, takes_delivery=job.syncer.takes_delivery),
            job.concurrency,
            self._mailbox,
        )
        self._shelf = Shelf(transport.promises)
        self._asked: str | None = None
        self._ending: tuple[Exit, str, str] | None = None  # decided, perhaps still draining
        self._over = False
        self._deadline: float | None = None  # of the drain
        self._held: set[Delivery] = set()  # received on this connection and not settled
        self._running = 0  # handed to workers and not come back, on whatever connection
        self._unfinished = 0  # given back to the broker because this process ends
        self._connected = False
        self._quiet = False  # the last turn brought nothing
        self._saw_empty = False  # and before it the broker said that nothing waits
        self._faults_in_a_row = 0
        self._sealed_in_a_row = 0
        self._attempt = 0
        self._started = self._connected_at = self._lost_at = self._last_delivery = self._ticked = clock()
        self._ever_connected = False
        transport.machine.watch(self._state_changed)

    def stop(self, reason: str) -> None:
        """Ask for a drain. Safe in a signal handler and from any thread."""
        if self._asked is None:
            self._asked = reason
        self._waker.wake()
        self._transport.wake()

    def run(self) -> Ending:
        """Run to the end. Raises OperatorError when it cannot begin."""
        self._say(events.STARTING, logging.INFO, "starting", syncer=self._job.syncer.name)
        self._workers.start()
        watch_other_threads(self._mailbox)
        try:
            self._loop()
        except OperatorError:
            self._workers.stop(LEAVING)
            raise
        finally:
            self._transport.close()
        return self._end()

    def _loop(self) -> None:
        while not self._over:
            try:
                if self._connected:
                    self._turn()
                elif self._stopping():
                    self._drain_offline()
                else:
                    self._connect()
            except ConnectionLost as error:
                self._lost(error)
            self._tick()

    # --- connecting ---------------------------------------------------------------------------------

    def _connect(self) -> None:
        machine = self._transport.machine
        machine.fire(Event.CONNECT if machine.can(Event.CONNECT) else Event.BACKOFF_EXPIRED)
        try:
            queued = self._transport.open(self._stopping)
        except BrokerRefused as error:
            if not self._ever_connected:
                raise
            self._failed_try(error)
            return
        except BrokerError as error:
            self._failed_try(error)
            return
        if self._stopping():
            return
        now = self._clock()
        self._connected = True
        if queued is not None and not self._ever_connected:
            self.counters.queued = queued
        self._say(
            events.READY,
            logging.INFO,
            "consuming" if queued is None else f"consuming, {queued} waiting",
            queued=queued,
            attempts=self._attempt + 1,
            away_ms=round((now - self._lost_at) * 1000),
            concurrency=self._job.concurrency,
            prefetch=self._job.prefetch,
        )
        self._ever_connected = True
        self._connected_at = self._last_delivery = now

    def _failed_try(self, error: ChronicleError) -> None:
        self._transport.machine.fire(Event.FAILED)
        self._transport.close()
        self._attempt += 1
        now = self._clock()
        if self._ever_connected:
            patience, since = self._job.lifecycle.give_up_after, self._lost_at
        else:
            patience, since = self._job.lifecycle.startup_timeout, self._started
        delay = self._backoff.delay(self._attempt, self._luck())
        if patience:
            left = since + patience - now
            if left <= 0:
                self._decide_ending(Exit.UNREACHABLE, f"{error}; given up after {self._attempt} tries")
                return
            delay = min(delay, left)
        self._say(
            events.RETRY,
            logging.ERROR if isinstance(error, BrokerRefused) else logging.WARNING,
            f"{error}; trying again in {delay:.1f}s",
            attempt=self._attempt,
            delay_ms=round(delay * 1000),
        )
        self._sleep_until(now + delay)

    def _lost(self, error: ConnectionLost) -> None:
        """The connection is gone, and with it everything that was received on it."""
        now = self._clock()
        self._connected = False
        self._transport.machine.fire(Event.FAILED)
        self._transport.close()
        self._running -= len(self._workers.discard())
        self._shelf.empty()
        if self._stopping():
            self._unfinished += len(self._held)
        self._held.clear()
        if now - self._connected_at >= HEALTHY or self._last_delivery > self._connected_at:
            self._attempt = 0
        self._lost_at = now
        self.counters.reconnects += 1
        self._say(events.LOST, logging.WARNING, str(error), running=self._running)
        self._watch_faults(error)
        if not self._stopping():
            self._sleep_until(now + self._backoff.delay(self._attempt + 1, self._luck()))

    def _watch_faults(self, error: ConnectionLost) -> None:
        """Do not come back for ever to bytes that nobody here can read (RB13)."""
        if isinstance(error, ProtocolFault) and self._last_delivery <= self._connected_at:
            self._faults_in_a_row += 1
            if self._faults_in_a_row == FAULT_LIMIT:
                self._fail(Exit.FATAL, f"{error}; the same {FAULT_LIMIT} times in a row")
        else:
            self._faults_in_a_row = 0

    def _sleep_until(self, due: float) -> None:
        """Wait away from the broker; a stop ends the wait, late results do not."""
        while not self._stopping() and (left := due - self._clock()) > 0:
            self._waker.wait(min(left, TURN))
            self._take_late()
            self._tick()

    def _take_late(self) -> None:
        """Results of deliveries whose connection is gone."""
        late = self._mailbox.take()
        self._running -= len(late)
        for settlement in late:
            self._watch_for_fatal(settlement)
        if late:
            self._account(self._transport.settle(late))

    # --- the turn -----------------------------------------------------------------------------------

    def _turn(self) -> None:
        now = self._clock()
        self._take_finished(now)
        self._settle(self._shelf.due(now))
        self._plan(now)
        if self._over:
            return
        self._mailbox.pump_sleeps = True
        batch = self._transport.receive(self._room(), self._patience(now))
        self._mailbox.pump_sleeps = False
        self._quiet = not batch
        if batch:
            self._saw_empty = False
            self._last_delivery = now
            self._attempt = 0
            self.counters.received += len(batch)
            self._running += len(batch)
            self._held.update(batch)
            self._workers.submit(batch)

    def _settle(self, work: Sequence[Settlement]) -> None:
        try:
            settled = self._transport.settle(work)
        except ConnectionLost:
            self.counters.ack_retry += len(work)
            raise
        self._account(settled)

    def _patience(self, now: float) -> float:
        """How long the broker may keep the pump waiting."""
        if self._mailbox or self._saw_empty or (self._ending is not None and not self._held):
            return 0.0
        return min(TURN, self._shelf.wait(now))

    def _room(self) -> int:
        if self._ending is not None and self._ending[0] is not Exit.DONE:
            return 0
        room = self._job.prefetch - len(self._held)
        limit = self._job.bounds.max_messages
        if limit is not None:
            room = min(room, limit - self.counters.received)
        return max(room, 0)

    def _take_finished(self, now: float) -> None:
        finished = self._mailbox.take()
        self._running -= len(finished)
        for settlement in finished:
            if settlement.verdict.action is Action.LEAVE:
                self._watch_for_fatal(settlement)
                self._held.discard(settlement.delivery)
                self._unfinished += 1
                self._observer.settled((settlement,))
            else:
                self._watch_seals(settlement)
                self._shelf.put(settlement, now)

    def _watch_for_fatal(self, settlement: Settlement) -> None:
        if isinstance(settlement.outcome, Fatal):
            self._fail(Exit.FATAL, settlement.outcome.reason, settlement.outcome.trace)

    def _watch_seals(self, settlement: Settlement) -> None:
        """Stop before a wrong key store empties the whole queue into the dead letters (Z7)."""
        if isinstance(settlement.outcome, Invalid) and settlement.outcome.sealed:
            self._sealed_in_a_row += 1
            if self._sealed_in_a_row == SEALED_LIMIT:
                self._fail(
                    Exit.OPERATOR,
                    f"{SEALED_LIMIT} messages in a row could not be decrypted: the key store does not fit this "
                    "queue; check it with `chronicle keys check`",
                )
        elif settlement.opened:
            self._sealed_in_a_row = 0

    def _account(self, settled: Sequence[Settlement]) -> None:
        if not settled:
            return
        for settlement in settled:
            self._held.discard(settlement.delivery)
            self.counters.settled(settlement)
        self._observer.settled(settled)

    def _tick(self) -> None:
        now = self._clock()
        if now - self._ticked >= TURN:
            self._ticked = now
            self.counters.inflight = self._running
            self._observer.tick(self.counters)

    # --- ending -------------------------------------------------------------------------------------

    def _stopping(self) -> bool:
        return self._asked is not None or self._ending is not None or self._mailbox.crash is not None

    def _plan(self, now: float) -> None:
        """See whether it is time to stop, and whether a drain is over."""
        if self._mailbox.crash is not None:
            self._crashed(self._mailbox.crash)
        if self._ending is None:
            reason = self._asked or self._bound_reached(now)
            if reason:
                self._begin_drain(reason, now)
        elif not self._held and (self._quiet or not self._room()):
            self._finish(Event.ALL_SETTLED)
        elif self._deadline is not None and now >= self._deadline:
            self._finish(Event.DEADLINE)

    def _bound_reached(self, now: float) -> str:
        bounds = self._job.bounds
        if bounds.max_messages is not None and self.counters.received >= bounds.max_messages:
            return f"{bounds.max_messages} messages received"
        if bounds.max_time is not None and now - self._started >= bounds.max_time:
            return "time is up"
        if self._held or not self._quiet:
            return ""
        if bounds.idle_timeout is not None and now - self._last_delivery >= bounds.idle_timeout:
            return "idle"
        if bounds.until_empty:
            if self._saw_empty:
                return "the queue is empty"
            # What the broker pushed before it answered is here by now: the turn that follows brings it.
            self._saw_empty = self._transport.depth() == 0
        return ""

    def _begin_drain(self, reason: str, now: float) -> None:
        self._say(events.STOPPING, logging.INFO, f"stopping: {reason}", unsettled=len(self._held))
        self._decide_ending(Exit.DONE, reason)
        self._deadline = now + self._job.lifecycle.drain_timeout
        self._shelf.hurry()
        self._transport.machine.fire(Event.STOP)
        self._transport.stop()

    def _fail(self, code: Exit, reason: str, trace: str = "") -> None:
        """Stop for a reason that nothing can mend: finish what is finished, wait a moment, go."""
        if self._ending is not None and self._ending[0] is not Exit.DONE:
            return
        self._say(events.FATAL, logging.CRITICAL, reason, trace=trace)
        self._ending = (code, reason, trace)
        self._deadline = self._clock() + FATAL_GRACE
        discarded = self._workers.discard()
        self._running -= len(discarded)
        self._unfinished += len(discarded)
        self._held.difference_update(discarded)
        self._shelf.hurry()
        self._transport.machine.fire(Event.STOP)

    def _crashed(self, error: BaseException) -> None:
        self._mailbox.crash = None
        self._fail(Exit.FATAL, f"uncaught {type(error).__name__} outside any message", trace_of(error, None))

    def _decide_ending(self, code: Exit, reason: str) -> None:
        self._ending = (code, reason, "")

    def _drain_offline(self) -> None:
        """The connection is gone: let running syncers end, they did their work in the world outside."""
        if self._mailbox.crash is not None:
            self._crashed(self._mailbox.crash)
        if self._ending is None:
            self._decide_ending(Exit.DONE, self._asked or "stopped")
            self._say(events.STOPPING, logging.INFO, f"stopping: {self._asked}", unsettled=0)
        if self._deadline is None:
            self._deadline = self._clock() + self._job.lifecycle.drain_timeout
            self._transport.machine.fire(Event.STOP)
        if self._running and not self._mailbox:
            self._waker.wait(TURN)
        self._take_late()
        if not self._running:
            self._finish(Event.ALL_SETTLED)
        elif self._clock() >= self._deadline:
            self._unfinished += self._running
            self._finish(Event.DEADLINE)

    def _finish(self, event: Event) -> None:
        """Name what stays unfinished, and leave the loop."""
        left = [Settlement(d, Interrupted(), Verdict(Action.LEAVE, "interrupted")) for d in self._held]
        self._unfinished += len(left)
        self._observer.settled(left)
        self._transport.machine.fire(event)
        self._over = True

    def _end(self) -> Ending:
        assert self._ending is not None
        code, reason, trace = self._ending
        try:
            stuck = not self._workers.stop(LEAVING if self._running else self._job.lifecycle.drain_timeout)
        except BaseException as error:
            stuck = False
            if code is Exit.DONE:
                code, reason = Exit.FATAL, f"the syncer failed to close: {type(error).__name__}"
            self._say(events.FATAL, logging.ERROR, "the syncer failed to close", trace=trace_of(error, None))
        if code is Exit.DONE and (self._unfinished or stuck):
            code, reason = Exit.RETURNED, f"{reason}; {self._unfinished} unfinished messages went back"
        self.counters.inflight = self._running
        self._say(
            events.STOPPED,
            logging.INFO if code is Exit.DONE else logging.ERROR,
            f"stopped: {reason}",
            exit_code=int(code),
            unfinished=self._unfinished,
            **self.counters.facts(),
        )
        self._observer.close(self.counters)
        return Ending(code, reason, self.counters, stuck, trace)

    # --- telling ------------------------------------------------------------------------------------

    def _say(self, name: str, level: int, text: str, **facts: object) -> None:
        self._observer.event(name, level, text, **facts)

    def _state_changed(self, before: str, after: str, event: Event) -> None:
        name = events.state_change(self._transport.promises.transport)
        self._say(
            name, logging.DEBUG, f"{before} → {after}", **{"from": before, "to": after, "on": str(event)}
        )
