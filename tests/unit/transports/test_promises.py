"""What a transport cannot honour is refused before the first message, with a reason and a remedy."""

from __future__ import annotations

import pytest

from chronicle.core.policy import OnExhausted, OnFailure, OnInvalid, Policy
from chronicle.errors import SettingError
from chronicle.transports.seam import DeadLetterKeeper, Promises, needed_by, refuse_what_it_cannot

SETTLES = Promises("queue")
GONE = Promises("radio", settles=False, retries=False, dead_letters=DeadLetterKeeper.NOBODY)
IMPATIENT = Promises("belt", retries=False)
FORGETFUL = Promises("sieve", dead_letters=DeadLetterKeeper.NOBODY)
TRUSTING = Promises("shelf", dead_letters=DeadLetterKeeper.BROKER)


def refusal(promises: Promises, policy: Policy, *, until_empty: bool = False) -> str:
    with pytest.raises(SettingError) as refused:
        refuse_what_it_cannot(promises, policy, until_empty=until_empty)
    return f"{refused.value}; {refused.value.remedy}"


@pytest.mark.parametrize(
    "promises", [SETTLES, GONE, IMPATIENT, FORGETFUL, TRUSTING], ids=lambda p: str(p.transport)
)
def test_what_nobody_asked_for_is_not_refused(promises: Promises) -> None:
    refuse_what_it_cannot(promises, Policy())


def test_a_queue_that_settles_takes_everything() -> None:
    policy = Policy(
        OnFailure.RETRY, OnInvalid.DEAD_LETTER, max_retries=3, on_exhausted=OnExhausted.DEAD_LETTER
    )
    refuse_what_it_cannot(SETTLES, policy, until_empty=True)


@pytest.mark.parametrize(
    ("policy", "flag"),
    [
        (Policy(OnFailure.RETRY), "--on-failure"),
        (Policy(on_invalid=OnInvalid.DEAD_LETTER), "--on-invalid"),
        (Policy(max_retries=3), "--max-retries"),
    ],
)
def test_where_a_message_is_gone_when_it_arrives_no_option_about_failures_helps(
    policy: Policy, flag: str
) -> None:
    """S10."""
    said = refusal(GONE, policy)
    assert said.startswith(f"{flag} cannot be honoured by radio: a message is gone when it arrives; ")


def test_nobody_can_say_that_a_radio_is_empty() -> None:
    said = refusal(GONE, Policy(), until_empty=True)
    assert said == (
        "--until-empty cannot be honoured by radio: nothing waits there, so nobody can say that it is empty; "
        "end the run with --idle-timeout, --max-time or --max-messages"
    )


def test_tries_without_a_place_to_wait() -> None:
    """The remedy is for whoever types the option, and for whoever writes Python."""
    said = refusal(IMPATIENT, Policy(OnFailure.RETRY, max_attempts=7))
    assert said.startswith("--on-failure retry:7 cannot be honoured by belt: there is no place where")
    assert said.endswith("choose requeue-once or dead-letter; in Python, a Connector may need retry_delays")


def test_dead_letters_that_nobody_keeps_are_refused_by_the_option_that_asked() -> None:
    assert refusal(FORGETFUL, Policy(OnFailure.DEAD_LETTER)).startswith("--on-failure cannot be honoured")
    drop = Policy(OnFailure.ACK, max_retries=1, on_exhausted=OnExhausted.DEAD_LETTER)
    assert refusal(FORGETFUL, drop).startswith("--on-exhausted cannot be honoured by sieve: it keeps no dead")


def test_d_22_what_is_exhausted_is_not_left_to_a_broker() -> None:
    """Rejected inside a retry loop it would come round again; the transport may be able to keep it."""
    keep = Policy(max_retries=1, on_exhausted=OnExhausted.DEAD_LETTER)
    said = refusal(TRUSTING, keep)
    assert said.startswith("--on-exhausted dead-letter cannot be honoured when dead letters are left to the")
    assert "leave out --dead-letters broker" in said
    refuse_what_it_cannot(Promises("desk", dead_letters=DeadLetterKeeper.EITHER), keep)
    assert (needed_by(keep), needed_by(Policy())) == ("--on-exhausted dead-letter", "")
