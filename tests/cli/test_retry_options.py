"""`--on-failure retry:N` and `--retry-delay`: what is taken, what is refused, what they make (D-2)."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from chronicle.core.policy import OnFailure, Policy
from chronicle.errors import SettingError
from chronicle.settings.run import check_retry
from chronicle_cli import options


@click.command
@options.outcome
@click.pass_context
def probe(ctx: click.Context, /, **_: object) -> Policy:
    return options.policy_of(ctx)


def policy(*args: str, env: dict[str, str] | None = None) -> Any:
    done = CliRunner(env=env or {}).invoke(probe, args, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("requeue-once", OnFailure.REQUEUE_ONCE),
        ("dead-letter", OnFailure.DEAD_LETTER),
        ("requeue", OnFailure.REQUEUE),
        ("ack", OnFailure.ACK),
    ],
)
def test_D_1_each_choice_by_its_name(written: str, meant: OnFailure) -> None:
    assert policy("--on-failure", written) == Policy(meant)
    assert policy(env={"CHRONICLE_ON_FAILURE": written}) == Policy(meant)


def test_R_003_8_retry_takes_the_number_of_tries() -> None:
    made = policy("--on-failure", "retry:7")
    assert (made.on_failure, made.max_attempts) == (OnFailure.RETRY, 7)
    assert made.retry_delays == (5.0, 30.0, 300.0)


def test_D_2_the_delays_are_steps() -> None:
    made = policy("--on-failure", "retry:3", "--retry-delay", "100ms,2s,5m")
    assert made.retry_delays == (0.1, 2.0, 300.0)


@pytest.mark.parametrize(
    "wrong", ["retry", "retry:", "retry:0", "retry:-1", "retry:x", "retry:1.5", "retry:٣"]
)
def test_a_retry_without_a_number_of_tries_is_refused(wrong: str) -> None:
    with pytest.raises(click.UsageError, match=r"retry:N with a whole number of at least 1.*retry:5"):
        policy("--on-failure", wrong)


@pytest.mark.parametrize("wrong", ["explode", "ack:3", "", "REQUEUE"])
def test_another_word_is_answered_with_the_choices(wrong: str) -> None:
    with pytest.raises(click.UsageError, match="requeue-once, retry:N, dead-letter, requeue, ack"):
        policy("--on-failure", wrong)


@pytest.mark.parametrize("wrong", ["5", "0s", "5s,", "5s 30s", "fast", "5s,0s"])
def test_delays_that_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(click.UsageError, match="--retry-delay takes durations above zero"):
        policy("--on-failure", "retry:3", "--retry-delay", wrong)


@pytest.mark.parametrize("wrong", [(0.0004,), (5.0, 50 * 86400.0)])
def test_delays_that_no_broker_keeps_are_refused(wrong: tuple[float, ...]) -> None:
    with pytest.raises(SettingError, match="from 1ms to 49d"):
        check_retry(Policy(OnFailure.RETRY), 3, wrong)


def test_delays_without_tries_are_refused_on_the_command_line() -> None:
    with pytest.raises(SettingError, match="without --on-failure retry:N"):
        policy("--retry-delay", "5s")
    # The variable may stand there for `chronicle declare`.
    assert policy(env={"CHRONICLE_RETRY_DELAY": "5s"}) == Policy()
    by_variables = policy(env={"CHRONICLE_RETRY_DELAY": "5s", "CHRONICLE_ON_FAILURE": "retry:2"})
    assert (by_variables.max_attempts, by_variables.retry_delays) == (2, (5.0,))
