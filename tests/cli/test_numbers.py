"""Every number option refuses what is not its number, in one line (R-004-9, R-004-10, D-8).

The options are tried on a small command of their own, so that nothing but them is tested.
"""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from chronicle_cli import options
from chronicle_cli.help import GroupedOption
from chronicle_cli.params import POSITIVE, Duration, Factor, Size, Whole

BAD = ["0", "-1", "1.5", "x", "true", ""]
# What is bad for a count may be good for another kind of number.
FINE = {Duration: {"0"}, Size: set(), Factor: {"1.5"}, Whole: set()}


@click.command
@options.where
@options.work
@options.outcome
@options.bounds
@options.lifecycle
@options.output
def probe(**values: object) -> None:
    click.echo("taken")


REQUIRED = ["--queue", "q", "--syncer", "m:f"]
NUMBERS = [param for param in probe.params if isinstance(param.type, Whole | Factor | Duration | Size)]


def fine(param: click.Parameter) -> set[str]:
    if isinstance(param.type, Duration) and not param.type.zero:
        return set()
    return FINE[type(param.type)]


def refused(param: click.Parameter, value: str, *, by_variable: bool = False) -> str | None:
    """The line that refuses a value, or None when it was taken."""
    assert isinstance(param, GroupedOption)
    flag = param.opts[0]
    environ = {str(param.envvar): value} if by_variable else {}
    args = REQUIRED if by_variable else [*REQUIRED, f"{flag}={value}"]
    done = CliRunner(env=environ).invoke(probe, args, standalone_mode=False)
    if done.exception is None:
        return None
    assert isinstance(done.exception, click.UsageError)
    return done.exception.format_message()


def test_all_number_options_are_here() -> None:
    assert {param.opts[0] for param in NUMBERS} == {
        "--concurrency", "--prefetch", "--max-body", "--max-retries", "--max-messages", "--max-time",
        "--idle-timeout", "--startup-timeout", "--drain-timeout", "--reconnect-initial", "--reconnect-max",
        "--reconnect-multiplier", "--give-up-after", "--progress",
    }  # fmt: skip


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("param", NUMBERS, ids=lambda param: param.opts[0])
def test_bad_numbers_are_refused_in_one_line(param: click.Parameter, value: str) -> None:
    """R-004-10: invalid values end the start; the line names the option and the value."""
    line = refused(param, value)
    if value in fine(param):
        assert line is None
        return
    assert line is not None
    assert "\n" not in line
    assert line.startswith(f"{param.opts[0]} takes ")
    assert line.endswith(f", not {value!r}")


@pytest.mark.parametrize("param", NUMBERS, ids=lambda param: param.opts[0])
def test_a_bad_variable_is_named(param: click.Parameter) -> None:
    """The operator must find the line: it may stand in a file far away."""
    line = refused(param, "true", by_variable=True)
    assert line is not None
    assert line.startswith(f"{param.envvar} ({param.opts[0]}) takes ")


def test_the_line_of_the_handbook() -> None:
    [param] = [param for param in NUMBERS if param.opts[0] == "--concurrency"]
    assert refused(param, "1.5") == "--concurrency takes a whole number of at least 1, not '1.5'"


@pytest.mark.parametrize("value", ["1_000", "١", "+1", "1e3", " 1", "9" * 5000, "99999999999"])
def test_odd_spellings_of_numbers_are_refused(value: str) -> None:
    with pytest.raises(click.UsageError, match="the value takes a whole number"):
        POSITIVE.convert(value, None, None)


@pytest.mark.parametrize("value", ["nan", "inf", "0.5", "1e5", "2,5"])
def test_a_factor_is_a_plain_number(value: str) -> None:
    with pytest.raises(click.UsageError, match="at least 1"):
        Factor().convert(value, None, None)


def test_a_choice_names_its_choices() -> None:
    done = CliRunner().invoke(probe, [*REQUIRED, "--on-failure", "explode"], standalone_mode=False)
    assert str(done.exception) == (
        "--on-failure takes one of requeue-once, retry:N, dead-letter, requeue, ack, not 'explode'"
    )


def test_the_default_of_a_choice_is_shown_as_it_is_written() -> None:
    text = CliRunner().invoke(probe, ["--help"], terminal_width=1000).output
    for default in ("requeue-once", "exit", "proca", "auto", "info"):
        assert f"default: {default}]" in text


def test_a_pair_is_not_repeated_when_it_is_refused() -> None:
    """Z3: a value of --set may be a secret."""
    done = CliRunner().invoke(probe, [*REQUIRED, "--set", "hunter22"], standalone_mode=False)
    assert str(done.exception) == "--set takes KEY=VALUE"
