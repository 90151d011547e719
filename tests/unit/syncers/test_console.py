"""The console syncer, the consent predicates, and how settings are read."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle import DeadLetter
from chronicle.errors import SettingError
from chronicle.workers.loader import load
from chronicle_syncers._settings import flag, seconds
from chronicle_syncers.consent import double_opted_in, has_consent, opted_in
from chronicle_syncers.console import Console, printable
from support.proca_messages import CANARY, action, event

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("schema", "actionId", "action", "eventType", "campaign", "org", "privacy", "supporter", "name")


def shown(message: Any, **environ: str) -> str:
    out = io.StringIO()
    assert Console(environ, out)(message) is True
    return out.getvalue()


def test_one_line_that_identifies_the_message() -> None:
    line = "proca:action:2 actionId=1001 actionType=register campaign=forests org=your_org\n"
    assert shown(action()) == line
    assert shown(event()) == "proca:event:2 actionId=1001 eventType=email_status\n"
    assert shown({}) == "no-schema\n"


def test_no_personal_data_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """D-21, Z5."""
    for message in (action(), event()):
        assert Console({})(message) is True
    assert CANARY not in capsys.readouterr().out


def test_reveal_shows_the_whole_message_as_json() -> None:
    assert json.loads(shown(action(), CHRONICLE_CONSOLE_REVEAL="1")) == action()


@pytest.mark.parametrize("reveal", ["0", "1"])
def test_nothing_moves_the_cursor(reveal: str) -> None:
    """Z10: names are somebody else's text."""
    message = action() | {"org": {"name": "a\r\n\x1b[2J\x9b\u202e"}}
    line = shown(message, CHRONICLE_CONSOLE_REVEAL=reveal)
    assert line.endswith("\n")
    assert line[:-1].isprintable()


def test_a_terminal_without_unicode() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert Console({"CHRONICLE_CONSOLE_REVEAL": "1"}, out)(action()) is True


@given(st.dictionaries(st.sampled_from(NAMES), anything))
def test_any_object_is_shown_and_asked_about(message: dict[str, Any]) -> None:
    assert shown(message).count("\n") == 1
    assert {has_consent(message), opted_in(message), double_opted_in(message)} <= {True, False}


@given(st.text())
def test_printable_keeps_json_readable(text: str) -> None:
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_what_is_no_json_object() -> None:
    with pytest.raises(SettingError, match="JSON objects"):
        shown(b"raw", CHRONICLE_CONSOLE_REVEAL="1")
    with pytest.raises(DeadLetter) as caught:
        shown(action(lastName="\ud800"), CHRONICLE_CONSOLE_REVEAL="1")
    assert CANARY not in str(caught.value)


def test_whole_numbers_of_any_length_stay_exact() -> None:
    assert json.loads(shown(action(10**40), CHRONICLE_CONSOLE_REVEAL="1"))["actionId"] == 10**40


def test_consent_is_an_explicit_yes() -> None:
    """proca.md §6."""
    assert has_consent(action())
    assert opted_in(action())
    assert not double_opted_in(action())
    for privacy in ({}, None, {"withConsent": "yes", "optIn": True}, {"withConsent": False, "optIn": True}):
        assert not has_consent(action() | {"privacy": privacy})
        assert not opted_in(action() | {"privacy": privacy})
    assert not opted_in(action() | {"privacy": {"withConsent": True, "optIn": None}})


def test_an_event_keeps_the_answers_under_supporter() -> None:
    assert double_opted_in(event())
    assert not has_consent(event())


@pytest.mark.parametrize("value", ["yes", "2", "true"])
def test_a_switch_is_0_or_1(value: str) -> None:
    with pytest.raises(SettingError, match="SOME_FLAG"):
        flag({"SOME_FLAG": value}, "SOME_FLAG")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_seconds_are_a_number_above_zero(value: str) -> None:
    with pytest.raises(SettingError, match="SOME_TIME"):
        seconds({"SOME_TIME": value}, "SOME_TIME", 10)


@pytest.mark.parametrize("name", ["console", "jsonlines", "csvfile", "webhook", "sql"])
def test_every_syncer_is_found_by_name(name: str) -> None:
    """design.md §4: `module:name`, called with a message."""
    found = load(f"chronicle_syncers.{name}:sync")
    assert not found.is_async
    assert not found.takes_delivery
