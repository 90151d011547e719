"""The options that only Redis has, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from chronicle.errors import SettingError
from chronicle.transports.redis.choices import Choices, choices_of
from chronicle.transports.redis.options import OPTIONS, Mode


def test_what_was_not_chosen_has_its_default() -> None:
    choices = choices_of({})
    assert choices == Choices()
    assert (choices.mode, choices.group, choices.start) == (Mode.STREAM, "chronicle", "0")
    assert (choices.fields, choices.claim_idle, choices.maxlen) == ((b"data", b"payload"), 60.0, None)


def test_the_help_tells_the_true_defaults() -> None:
    told = {option.name: option.usual for option in OPTIONS}
    usual = Choices()
    assert (told["mode"], told["group"]) == (usual.mode, usual.group)
    assert told["claim_idle"] == f"{usual.claim_idle:g}s"
    assert told["field"] == ", else ".join(field.decode() for field in usual.fields)
    assert choices_of({"from": told["from"]}) == usual


def test_every_choice() -> None:
    choices = choices_of(
        {
            "group": "crm",
            "from": "1-0",
            "field": "körper",
            "claim_idle": 5.0,
            "maxlen": 1000,
            "mode": "stream",
        }
    )
    assert (choices.group, choices.start, choices.fields) == ("crm", "1-0", ("körper".encode(),))
    assert (choices.claim_idle, choices.maxlen) == (5.0, 1000)
    alone = choices_of({"no_group": True, "cursor": "{orders}.at", "from": "end"})
    assert (alone.group, alone.cursor, alone.start) == (None, "{orders}.at", "$")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("start", "0"),
        ("end", "$"),
        ("0", "0"),
        ("1772446272000-0", "1772446272000-0"),
        ("18446744073709551615-18446744073709551615", "18446744073709551615-18446744073709551615"),
    ],
)
def test_where_to_begin(text: str, start: str) -> None:
    """S1: at the beginning, unless the end or an id is asked for."""
    assert choices_of({"from": text}).start == start


@pytest.mark.parametrize("text", ["", "$", "-1", "1-", "1-2-3", "1.5", "now", "٣", "1-0\n", "9" * 21])
def test_what_is_no_place_in_a_stream(text: str) -> None:
    with pytest.raises(SettingError, match="--from takes start, end or the id of an entry") as error:
        choices_of({"from": text})
    assert error.value.remedy == "for example --from 1772446272000-0"


def test_nothing_is_claimed_sooner_than_a_living_consumer_may_be_silent() -> None:
    """S4: a slow syncer is never robbed, whatever --claim-idle is."""
    assert choices_of({"claim_idle": 0.001}).claim_idle == 2.0


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"no_group": True, "group": "crm"}, "--group together with --no-group"),
        ({"no_group": True, "claim_idle": 5.0}, "--claim-idle has no effect with --no-group"),
        ({"cursor": "at"}, "--cursor without --no-group"),
        ({"cursor": "at", "group": "crm"}, "--cursor without --no-group"),
        *(
            ({"mode": "pubsub", name: value}, f"--{flag} has no effect with --mode pubsub")
            for name, flag, value in (
                ("group", "group", "crm"),
                ("no_group", "no-group", True),
                ("from", "from", "end"),
                ("cursor", "cursor", "at"),
                ("field", "field", "body"),
                ("claim_idle", "claim-idle", 5.0),
                ("maxlen", "maxlen", 10),
            )
        ),
    ],
)
def test_a_choice_without_effect_is_refused(chosen: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError) as error:
        choices_of(chosen)
    assert error.value.problem == problem
    assert error.value.remedy


@pytest.mark.parametrize("option", ["group", "cursor", "field"])
@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[31m", "x" * 256, "ö" * 128])
def test_a_name_is_plain(option: str, name: str) -> None:
    """Z10: names stand in log lines and in keys."""
    with pytest.raises(SettingError, match=f"--{option} is empty, too long, or contains control") as error:
        choices_of({option: name, "no_group": option == "cursor"})
    assert error.value.remedy == f"give --{option} a plain name of at most 255 bytes"
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("option", ["group", "cursor", "field"])
def test_a_long_name_of_255_bytes_is_taken(option: str) -> None:
    choices_of({option: "x" * 255, "no_group": option == "cursor"})


def test_pubsub_takes_nothing_else() -> None:
    assert choices_of({"mode": "pubsub"}).mode is Mode.PUBSUB
