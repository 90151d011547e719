"""What becomes of a message.

Rule 1: every outcome turns into a verdict here and nowhere else. Code that finds out later that a verdict
        cannot be carried out asks here for another one.
Rule 2: this file knows no broker, no clock and no thread.
Rule 3: only Synced is acknowledged, unless the operator explicitly asked for `--on-failure ack`.
Rule 4: what fails in an outage is not to blame for it, so it gets no verdict: the engine tries it again from
        memory, and the broker learns nothing of the try (engine/brake.py, engine/intake.py).
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from typing import Final, assert_never

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery
from chronicle.core.frozen import frozen
from chronicle.core.outcome import (
    Action,
    Asked,
    Exhausted,
    Failed,
    Fatal,
    Interrupted,
    Invalid,
    Outcome,
    Revoked,
    Synced,
    Verdict,
)
from chronicle.core.words import many
from chronicle.errors import DeadLetter, Drop, Retry


class OnFailure(StrEnum):
    """What a failed message gets (D-1)."""

    REQUEUE_ONCE = "requeue-once"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    REQUEUE = "requeue"
    ACK = "ack"


FAILURE_FORMS: Final = tuple("retry:N" if on is OnFailure.RETRY else on.value for on in OnFailure)


def parse_on_failure(text: str) -> tuple[OnFailure, int]:
    """What a failed message gets, and how many tries (`retry:N`). Raises ValueError with the valid forms."""
    word, colon, number = text.partition(":")
    if word == OnFailure.RETRY:
        if not re.fullmatch(r"[0-9]{1,9}", number) or int(number) < 1:
            raise ValueError("retry:N with a whole number of at least 1, such as retry:5")
        return OnFailure.RETRY, int(number)
    if colon or word not in list(OnFailure):
        raise ValueError("one of " + ", ".join(FAILURE_FORMS))
    return OnFailure(word), 0


class OnInvalid(StrEnum):
    """What bad input gets (D-4)."""

    REQUEUE_ONCE = "requeue-once"
    DEAD_LETTER = "dead-letter"


class OnException(StrEnum):
    """What an exception in the syncer means (D-16)."""

    EXIT = "exit"
    FAIL = "fail"


class OnExhausted(StrEnum):
    """What a message beyond `--max-retries` gets (D-3)."""

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


RETRY_DELAYS: Final = (5.0, 30.0, 300.0)  # seconds


@frozen
class Policy:
    """The operator's choices."""

    on_failure: OnFailure = OnFailure.REQUEUE_ONCE
    on_invalid: OnInvalid = OnInvalid.REQUEUE_ONCE
    on_exception: OnException = OnException.EXIT
    on_exhausted: OnExhausted = OnExhausted.DROP
    max_retries: int | None = None
    max_attempts: int = 5  # of OnFailure.RETRY: this many tries, then the dead letters (R-003-12)
    retry_delays: tuple[float, ...] = RETRY_DELAYS  # the last one repeats
    rehearsal: bool = False  # replay and tests: no waiting, and no try after the tenth
    trial: bool = False  # a dead letter is tried in place: what is not synced stays dead


REHEARSED_TRIES: Final = 10
GROWING: Final = Backoff(initial=1.0, maximum=60.0)  # for another try that names no delay
ACKED = Verdict(Action.ACK, "synced")
# For a message that was to begin later (a rate, an outage), before its broker takes back all that is held.
KEPT_TOO_LONG: Final = Verdict(Action.REQUEUE, "it waited here for as long as the broker allows")


def decide(outcome: Outcome, delivery: Delivery, policy: Policy) -> Verdict:
    """Turn what happened into what to do about it."""
    verdict = _decide(outcome, delivery, policy)
    if policy.trial:
        verdict = tried(verdict)
    return rehearsed(verdict, delivery) if policy.rehearsal else verdict


def tried(verdict: Verdict) -> Verdict:
    """What a verdict means for a dead letter that is only being tried: only success removes it."""
    if verdict.action in (Action.ACK, Action.LEAVE):
        return verdict
    return Verdict(Action.DEAD_LETTER, verdict.reason)


def rehearsed(verdict: Verdict, delivery: Delivery) -> Verdict:
    """The same without waiting; what would be retried forever ends, so that a rehearsal does."""
    if verdict.action is not Action.REQUEUE:
        return verdict
    if delivery.attempts >= REHEARSED_TRIES:
        return Verdict(Action.DEAD_LETTER, f"{verdict.reason}; a real run would keep retrying it")
    return Verdict(Action.REQUEUE, verdict.reason)


def _decide(outcome: Outcome, delivery: Delivery, policy: Policy) -> Verdict:
    match outcome:
        case Synced():
            return ACKED
        case Failed(reason=reason):
            return _failed(reason, delivery, policy)
        case Invalid(reason=reason):
            if policy.on_invalid is OnInvalid.REQUEUE_ONCE:
                return requeue_once(reason, delivery)
            return Verdict(Action.DEAD_LETTER, reason)
        case Asked(ask=Retry(after=after), reason=reason):
            if policy.on_failure is OnFailure.RETRY:
                return retry(reason, delivery, policy, after)
            return Verdict(Action.REQUEUE, reason, after or None)  # at once would be a hot loop
        case Asked(ask=DeadLetter(), reason=reason):
            return Verdict(Action.DEAD_LETTER, reason)
        case Asked(ask=Drop(), reason=reason):
            return Verdict(Action.DROP, reason)
        case Asked(reason=reason):
            return _failed(reason, delivery, policy)
        case Exhausted(retries=retries, limit=limit):
            reason = f"{many(retries, 'retry', 'retries')}, limit {limit}"
            if policy.on_exhausted is OnExhausted.DROP:
                return Verdict(Action.DROP, reason)
            return Verdict(Action.DEAD_LETTER, reason)
        case Fatal(reason=reason):
            return Verdict(Action.LEAVE, reason)
        case Interrupted():
            return Verdict(Action.LEAVE, "interrupted")
        case Revoked():
            return Verdict(Action.LEAVE, "taken back before it started")
    assert_never(outcome)


def _failed(reason: str, delivery: Delivery, policy: Policy) -> Verdict:
    match policy.on_failure:
        case OnFailure.REQUEUE_ONCE:
            return requeue_once(reason, delivery)
        case OnFailure.RETRY:
            return retry(reason, delivery, policy)
        case OnFailure.DEAD_LETTER:
            return Verdict(Action.DEAD_LETTER, reason)
        case OnFailure.REQUEUE:
            return Verdict(Action.REQUEUE, reason, None)
        case OnFailure.ACK:
            return Verdict(Action.ACK, reason)
    assert_never(policy.on_failure)


def retry(reason: str, delivery: Delivery, policy: Policy, after: float | None = None) -> Verdict:
    """Another try after the delay of this step, as long as there are tries left (D-2, R-003-23, 24).

    A syncer that names a time gets the shortest step that is long enough, or else the longest step: on some
    brokers only these steps have a queue to wait in.
    """
    tries = delivery.attempts
    if tries >= policy.max_attempts:
        return Verdict(Action.DEAD_LETTER, reason)
    delays = policy.retry_delays
    step = delays[min(tries, len(delays)) - 1]
    if after:
        step = min((delay for delay in delays if delay >= after), default=max(delays))
    return Verdict(Action.RETRY, reason, step)


def requeue_once(reason: str, delivery: Delivery) -> Verdict:
    """One more try, then the dead letters (R-004-33).

    It reads the redelivered flag and not the attempts: in a retry loop built from a dead-letter exchange
    and a TTL, every round comes back with the flag cleared and gets its two tries. Where the broker leaves it
    set (RB10), a round has one try: nothing tells it from the second, and a requeue too many might never end.
    """
    if delivery.redelivered:
        return Verdict(Action.DEAD_LETTER, reason)
    return Verdict(Action.REQUEUE, reason)


# --- when a verdict turns out not to work as it is ------------------------------------------------------


def grown(verdict: Verdict, tries: int) -> Verdict:
    """The verdict with a delay: its own, or one that grows with the tries."""
    return verdict if verdict.delay is not None else replace(verdict, delay=GROWING.ceiling(tries))


def held(verdict: Verdict, longest: float) -> Verdict:
    """The verdict with a delay short enough to hold the message here; the syncer may ask again after that."""
    if verdict.delay is None or verdict.delay <= longest:
        return verdict
    note = f"held for at most {longest:g}s at a time, not for {verdict.delay:g}s"
    return replace(verdict, delay=longest, reason=f"{verdict.reason}; {note}")


def given_back(verdict: Verdict) -> Verdict:
    """The verdict on a message that was to be tried again here, when this process ends: it goes back now, to
    its own place if the broker knows one."""
    return Verdict(Action.REQUEUE, verdict.reason)


def cannot_move(verdict: Verdict, obstacle: str) -> Verdict:
    """What becomes of a message that chronicle cannot move as it should: it is left to the broker."""
    return Verdict(Action.DEAD_LETTER, f"{verdict.reason}; {obstacle}, so it is left to the broker")


def broker_cannot_move(verdict: Verdict, obstacle: str) -> Verdict:
    """The verdict on a dead letter that chronicle has moved because the broker would lose it."""
    return Verdict(Action.DEAD_LETTER, f"{verdict.reason}; {obstacle}, so chronicle moved a copy without it")


def nobody_can_move(verdict: Verdict, obstacle: str) -> Verdict:
    """The verdict on a dead letter that stays in its queue, unacknowledged, because nobody can move it."""
    return replace(verdict, reason=f"{verdict.reason}; {obstacle}, so it is put aside and stays in its queue")


def not_kept(verdict: Verdict) -> Verdict:
    """What becomes of a message that nobody keeps: there is no second try, and there are no dead letters."""
    if verdict.action in (Action.ACK, Action.DROP, Action.LEAVE):
        return verdict
    return Verdict(Action.DROP, f"{verdict.reason}; nobody keeps this message, so it is dropped")
