"""The pump: the one thread that owns the transport, the machine and the counters.

Rule 1: every turn takes finished work from the mailbox, settles it, then serves the broker. No call in here
        waits for a syncer.
Rule 2: what was received on a lost connection is the broker's again: what no worker has started is
        discarded, what is running may finish, and its late result is settled nowhere. Unless the transport
        promises otherwise: that a late result still counts, or that a message was gone when it arrived.
Rule 3: a drain finishes what was received; a fatal exit leaves the message that caused it in the queue and
        waits only briefly for the others; what stays unfinished is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import random
from time import monotonic

from chronicle.core.outcome import Action, Revoked, Synced
from chronicle.core.settlement import Settlement, interrupted, not_taken
from chronicle.engine import failures
from chronicle.engine.bounds import BoundsWatch
from chronicle.engine.breaker import SealBreaker
from chronicle.engine.delays import Delays
from chronicle.engine.failures import Failure
from chronicle.engine.holdings import Holdings
from chronicle.engine.intake import Intake
from chronicle.engine.job import Ending, Exit, Job, own_process, workers_for
from chronicle.engine.long_runs import LongRuns
from chronicle.engine.reconnect import Patience, no_answer
from chronicle.engine.run_events import RunEvents
from chronicle.engine.shutdown import Shutdown, leave_syncer
from chronicle.errors import BrokerError, BrokerRefused, ClientFailed, ConnectionLost, OperatorError
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer
from chronicle.transports.seam import Closing, Transport
from chronicle.transports.waker import Waker
from chronicle.workers.mailbox import Mailbox
from chronicle.workers.pump_loan import PULSE

FATAL_GRACE = 2.0  # how long others may finish after a fatal outcome (X4)


class Runner:
    """Runs one job over one transport until it is told to stop, is done, or cannot continue."""

    def __init__(
        self,
        job: Job,
        transport: Transport,
        observer: Observer,
        *,
        clock: Callable[[], float] = monotonic,
        luck: Callable[[], float] = random,
    ) -> None:
        now = clock()
        self.counters = Counters()
        self._job = job
        self._transport = transport
        self._promises = transport.promises
        self._observer = observer
        self._tell = RunEvents(observer, transport, self.counters, job.progress, now)
        self._clock = clock
        self._patience = Patience(job.lifecycle, self._promises.backoff, luck, now)
        self._waker = Waker()
        self._mailbox = Mailbox(transport.wake)
        self._workers = workers_for(job, self._mailbox)
        self._delays = Delays(self._promises, observer)
        self._shutdown = Shutdown(self.counters, job.objection)
        self._connected = False
        self._taking = False  # the transport may bring new deliveries
        self._failed_client = False  # the transport has said that it cannot go on
        self._holdings = Holdings(self.counters, observer)
        self._intake = Intake(
            job, self._promises, self._workers, self._holdings, self._delays, self.counters, self._tell, now
        )
        self._runs = LongRuns(job, self._promises, self._workers, self.counters, self._tell.slow)
        self._watch = BoundsWatch(job.bounds, now)
        self._seals = SealBreaker()
        self._ticked = now
        transport.machine.watch(self._tell.state_changed)

    def stop(self, reason: str) -> None:
        """Ask for a drain. Safe in a signal handler and from any thread."""
        self._shutdown.ask(reason)
        self._waker.wake()
        self._transport.wake()

    def run(self) -> Ending:
        """Run to the end. Raises OperatorError if it cannot start."""
        self._tell.starting(self._job.syncer)
        self._workers.start()
        try:
            self._loop()
        except OperatorError:
            self._leave_syncer()
            raise
        return self._end()

    def _loop(self) -> None:
        try:
            with own_process(self._job, self._mailbox):
                while not self._shutdown.over:
                    self._step()
        finally:
            # What is left goes back to the broker now: no syncer may start on it any more.
            self._intake.discard()
            self._transport.close(self._shutdown.closing)

    def _step(self) -> None:
        try:
            if self._connected and (fileno := self._lendable()) is not None:
                self._workers.borrow(self._lent_turn, fileno)
            elif self._connected:
                self._turn()
            elif self._stopping():
                self._drain_offline()
            else:
                self._connect()
        except ConnectionLost as error:
            self._lost(error)
        except ClientFailed as error:
            self._client_failed(error)
        self._tick()

    # --- connecting ---------------------------------------------------------------------------------

    def _connect(self) -> None:
        too_late = self._patience.try_from(self._clock())
        try:
            queued = self._transport.open(lambda: self._stopping() or too_late(self._clock()))
        except (BrokerRefused, BrokerError) as error:
            if isinstance(error, BrokerRefused) and not self._patience.ever_connected:
                raise
            self._failed_try(error)
            return
        if self._stopping():
            return  # it may not have opened; anything it has pushed goes back when it closes
        if too_late(self._clock()):
            self._failed_try(no_answer(self._transport.place))
            return
        if queued is not None and not self._patience.ever_connected:
            self.counters.queued = queued
        now = self._clock()
        self._tell.ready(self._job, queued, self._patience.tries + 1, self._patience.away(now))
        self._connected = self._taking = True
        self._patience.connected(now)
        self._watch.connected(now)

    def _failed_try(self, error: BrokerRefused | BrokerError) -> None:
        self._transport.close(Closing.LOST)
        now = self._clock()
        delay = self._patience.failed(now)
        self._patience.saw(error)
        self._fail(failures.of_garbage(error, self._patience))
        if self._shutdown.failing:
            return
        if delay is None:
            reason = failures.given_up(error, self._patience.tries)
            self._shutdown.decide(Exit.UNREACHABLE, reason, remedy=error.remedy)
            return
        self._tell.retry(error, self._patience.tries, delay)
        self._sleep_until(now + delay)

    def _client_failed(self, error: ClientFailed) -> None:
        """No reconnect would help. What is finished is settled, until the transport says so once more."""
        self._fail(failures.of_client(error))
        if self._failed_client and self._connected:
            self._disconnected(error)
        self._failed_client = True

    def _lost(self, error: ConnectionLost) -> None:
        now = self._clock()
        self._disconnected(error)
        self.counters.reconnects += 1
        self._tell.lost(error, self._holdings.running)
        delay = self._patience.lost(error, now)
        self._fail(failures.of_garbage(error, self._patience))
        self._sleep_until(now + delay)

    def _disconnected(self, error: ConnectionLost | ClientFailed) -> None:
        """The connection is gone, and with it, usually, everything that was received on it."""
        self._connected = self._taking = False
        self._transport.close(Closing.LOST)
        if not self._promises.settles or (self._promises.late_results and not self._stopping()):
            self._delays.send_again()
        else:
            self._forget(error)

    def _forget(self, error: ConnectionLost | ClientFailed) -> None:
        """Everything that is held is the broker's again."""
        holdings, lost = self._holdings, [*self._delays.empty(), *self._intake.forget()]
        unfinished = sum(settlement.delivery in holdings.held for settlement in lost)
        self._account([not_taken(settlement, str(error)) for settlement in lost])
        if self._stopping():
            holdings.unfinished += unfinished
            self._leave([interrupted(delivery) for delivery in holdings.held])
        holdings.forget()

    def _sleep_until(self, due: float) -> None:
        """Wait without a connection; a stop or the end of `--max-time` ends the wait, late results do not."""
        while not self._stopping() and (left := due - self._clock()) > 0:
            if self._watch.time_is_up(self._clock()):
                self._shutdown.decide(Exit.UNREACHABLE, "time is up, and the broker is unreachable")
                return
            self._waker.wait(min(left, PULSE))
            self._take_late()
            self._tick()

    def _take_late(self) -> None:
        """Results of deliveries whose connection is gone."""
        if self._promises.late_results and not self._stopping():
            self._take_finished(self._clock())
            return
        late = self._workers.take()
        self._holdings.running -= len(late)
        for settlement in late:
            self._fail(failures.of_syncer(settlement))
        if late or not self._failed_client:  # then every answer is bad news
            self._account(self._transport.settle(late))

    # --- the turn -----------------------------------------------------------------------------------

    def _lendable(self) -> int | None:
        """What the workers must watch to turn the pump themselves, if they can now (pump_loan.py)."""
        can = self._workers.can_borrow() and not self._needed_at_home()
        return self._transport.fileno() if can else None

    def _needed_at_home(self) -> bool:
        return self._stopping() or self._watch.asks_broker(len(self._holdings))

    def _lent_turn(self, patience: float) -> float | None:
        if not self._stopping():
            self._turn(patience)
            self._tick()
        return None if self._needed_at_home() else self._timeout(self._clock())

    def _turn(self, lent: float | None = None) -> None:
        """One turn; lent, it waits no longer than that and begins nothing that takes time."""
        now = self._clock()
        self._take_finished(now)
        if self._taking and self._shutdown.failing:
            # Cancelled before anything is settled: what the broker pushes now would not be handled (D-17).
            if lent is not None:
                return  # it takes a moment, so it is done at home
            self._taking = False
            self._transport.stop(FATAL_GRACE)
        self._account(self._transport.settle(self._delays.due(now)))
        self._delays.told()
        self._plan(now, at_home=lent is None)
        if self._shutdown.over:
            return
        self._mailbox.pump_sleeps = True
        room = self._intake.room
        batch = self._transport.receive(room, min(PULSE if lent is None else lent, self._timeout(now)))
        self._mailbox.pump_sleeps = False
        self._watch.turned(batch, now, had_room=room > 0)
        self._intake.received(batch, self._clock())

    def _take_finished(self, now: float) -> None:
        finished, intake = self._workers.take(), self._intake
        self._holdings.running -= len(finished)
        for settlement in finished:
            if settlement.verdict.action is Action.LEAVE and not isinstance(settlement.outcome, Revoked):
                self._fail(failures.of_syncer(settlement))
                self._leave((settlement,))
            elif self._seals.broken_by(settlement):
                self._fail(failures.WRONG_KEYS)
                self._leave((interrupted(settlement.delivery),))
            elif intake.watches or type(settlement.outcome) is not Synced:
                intake.finished(settlement, now)
            else:
                self._delays.put(settlement, now)
        if intake.doubtful:
            intake.look(now, ending=self._shutdown.ending is not None)

    def _account(self, settled: Sequence[Settlement]) -> None:
        if self._holdings.settled(settled):
            self._patience.progressed()

    def _timeout(self, now: float) -> float:
        """How long the pump may wait for the broker."""
        ended = self._shutdown.ending is not None and not self._holdings
        if self._mailbox or ended or self._watch.hurries(len(self._holdings)):
            return 0.0
        return min(PULSE, self._delays.wait(now), self._intake.wait(now))

    def _tick(self) -> None:
        self._tell.notices()
        now = self._clock()
        if now - self._ticked >= PULSE:
            self._ticked = now
            self._delays.release_revoked()
            self._intake.tick(now)
            self._fail(failures.of_stuck(self._runs.tick(now)))
            self._fail(failures.of_absence(self._transport, self._job.lifecycle.give_up_after))
            self._tell.tick(now)

    # --- ending -------------------------------------------------------------------------------------

    def _stopping(self) -> bool:
        return self._shutdown.begun or self._mailbox.crash is not None

    def _plan(self, now: float, at_home: bool) -> None:
        """Check whether it is time to stop, and whether a drain is over."""
        self._watch_for_crash()
        if self._shutdown.ending is None:
            is_empty = self._transport.is_empty if at_home else lambda: None  # asking takes time
            held = len(self._holdings)
            reason = self._shutdown.asked or self._intake.given_up
            reason = reason or self._watch.reached(now, self.counters, held, is_empty)
            if reason and at_home:
                self._begin_drain(reason, now)
            elif reason:
                self._shutdown.ask(reason)
            if not self._shutdown.is_late(now):  # a drain may have no time at all: then nothing begins in it
                return
        if self._intake.braked:  # nobody knows for how long
            self._leave(self._intake.discard())
        if not self._holdings and (self._watch.quiet or not self._intake.room):
            self._finish(Closing.SETTLED)
        elif self._shutdown.is_late(now):
            self._finish(Closing.DEADLINE)

    def _begin_drain(self, reason: str, now: float) -> None:
        if self._intake.braked:
            reason += f"; intake was paused: {self.counters.brake}"
            self._leave(self._intake.discard())
        self._tell.stopping(reason, len(self._holdings))
        self._shutdown.decide(Exit.DONE, reason)
        self._shutdown.deadline = now + self._job.lifecycle.drain_timeout
        self._delays.hurry()
        self._taking = False
        self._transport.stop(self._job.lifecycle.drain_timeout)

    def _fail(self, failure: Failure | None) -> None:
        """Stop if the run cannot continue: settle what is finished, wait a moment, exit (D-17)."""
        if failure is None or self._shutdown.failing:
            return
        self._tell.failed(failure)
        self._shutdown.decide(failure.code, failure.reason, failure.trace)
        self._shutdown.deadline = self._clock() + FATAL_GRACE
        self._leave(self._intake.shut(self._clock()))
        self._delays.hurry()

    def _watch_for_crash(self) -> None:
        if (error := self._mailbox.crash) is not None:
            self._mailbox.crash = None
            self._fail(failures.of_thread(error))

    def _drain_offline(self) -> None:
        """The connection is gone: running syncers finish, their side effects are real; no others begin."""
        self._watch_for_crash()
        if self._shutdown.ending is None:
            self._tell.stopping(self._shutdown.asked or "", unsettled=0)
            self._shutdown.decide(Exit.DONE, self._shutdown.asked or "")
        if self._shutdown.deadline is None:
            self._shutdown.deadline = self._clock() + self._job.lifecycle.drain_timeout
            self._transport.stop(0.0)
            if self._promises.late_results:
                self._forget(ConnectionLost("stopped while the connection was away"))
        if self._promises.settles:
            # These come again; they may have been counted when the connection was lost.
            self._holdings.unfinished = max(self._holdings.unfinished, self._holdings.running)
        if self._holdings.running and not self._mailbox:
            self._waker.wait(PULSE)
        self._take_late()
        if not self._holdings.running:
            self._finish(Closing.SETTLED)
        elif self._shutdown.is_late(self._clock()):
            self._finish(Closing.DEADLINE)

    def _finish(self, why: Closing) -> None:
        """Log what stays unfinished, and leave the loop."""
        if not self._promises.settles:  # then a verdict needs no connection
            self._account(self._transport.settle(self._delays.due(self._clock())))
        self._leave([interrupted(delivery) for delivery in self._holdings.held])
        if self._connected:
            self._account(self._transport.settle(self._delays.due(self._clock())))
        self._shutdown.finish(why)

    def _leave(self, left: Sequence[Settlement]) -> None:
        """These are not handled here: the broker gets them back when the connection closes, at the latest."""
        self._holdings.given_up(left)
        if self._connected:
            self._delays.extend(left)
        else:
            self._account(left)

    def _leave_syncer(self) -> tuple[bool, BaseException | None]:
        patience = 0.0 if self._holdings.running else self._job.lifecycle.drain_timeout
        return leave_syncer(self._workers, patience, self._tell)

    def _end(self) -> Ending:
        """Leave the syncer, and report how the run ended."""
        stuck, broken = self._leave_syncer()
        unfinished = self._holdings.given_back
        ending = self._shutdown.concluded(unfinished, self._transport.unconfirmed, stuck=stuck, broken=broken)
        self._tell.stopped(ending, unfinished)
        self._observer.close(self.counters)
        return ending
