"""The options that only Kafka has."""

from __future__ import annotations

import pytest

from chronicle.errors import SettingError
from chronicle.transports.kafka.choices import Choices, Edge, Start, choices_of, dead_letter_topic
from chronicle.transports.kafka.options import OPTIONS


def test_what_was_not_chosen_has_its_default() -> None:
    choices = choices_of({}, "orders")
    assert choices == Choices("chronicle.orders")
    assert (choices.start, choices.key, choices.partitions, choices.replication) == (None, (), None, None)


def test_the_help_tells_the_true_defaults() -> None:
    told = {option.name: option.usual for option in OPTIONS}
    assert told["group"] == choices_of({}, "TOPIC").group
    assert told["from"] == Edge.START


def test_a_look_at_dead_letters_has_a_group_of_its_own() -> None:
    """The operator's group consumes; what was taken out of TOPIC.dlq is another matter."""
    (group,) = (option for option in OPTIONS if option.name == "group")
    assert "dlq" not in group.commands
    assert choices_of({}, "orders.dlq").group == "chronicle.orders.dlq"


def test_every_choice() -> None:
    chosen = {"group": "crm", "from": "end", "key": "contact.contactRef", "partitions": 6, "replication": 3}
    assert choices_of(chosen, "orders") == Choices("crm", Edge.END, ("contact", "contactRef"), 6, 3)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("start", Edge.START),
        ("end", Edge.END),
        ("1772446272000", 1772446272000),
        ("2026-03-02T10:11:12Z", 1772446272000),
        ("2026-03-02T11:11:12+01:00", 1772446272000),
        ("2026-03-02T10:11:12.500Z", 1772446272500),
    ],
)
def test_where_to_begin(text: str, start: Start) -> None:
    assert choices_of({"from": text}, "orders").start == start


@pytest.mark.parametrize(
    "text",
    ["", "now", "-1", "1772446272", "20260302", "2026-03-02T10:11:12", "2026-03-02", "1960-01-01T00:00:00Z",
     "٣" * 13, "1772446272000\n", "9" * 16, "0001-01-01T00:00:00+14:00"],
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    """Seconds or a bare date would be read as milliseconds of 1970, and everything handled again."""
    with pytest.raises(SettingError, match="--from takes start, end, a time with its zone, or") as error:
        choices_of({"from": text}, "orders")
    assert error.value.remedy == "for example --from 2026-03-01T12:00:00Z"


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[31m", "x" * 256, "ö" * 128])
def test_a_group_has_a_plain_name(name: str) -> None:
    """Z10: names stand in log lines."""
    with pytest.raises(SettingError, match="--group is empty, too long, or contains control") as error:
        choices_of({"group": name}, "orders")
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("queue", ["", ".", "..", "a b", "a/b", "ö", "x" * 250, "a\n"])
def test_what_no_topic_can_be_called(queue: str) -> None:
    with pytest.raises(SettingError, match="--queue is no name of a topic"):
        choices_of({}, queue)


def test_a_topic_leaves_room_for_its_dead_letters() -> None:
    assert dead_letter_topic("x" * 245) == "x" * 245 + ".dlq"
    with pytest.raises(SettingError, match="too long for a dead-letter topic"):
        dead_letter_topic("x" * 246)


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "a\n", "x" * 256])
def test_a_key_is_a_path(path: str) -> None:
    with pytest.raises(SettingError, match="--key takes the names of fields"):
        choices_of({"key": path}, "orders")


@pytest.mark.parametrize(("option", "number"), [("partitions", 100_001), ("replication", 1001)])
def test_a_number_that_must_be_a_slip(option: str, number: int) -> None:
    with pytest.raises(SettingError, match=f"--{option} takes at most"):
        choices_of({option: number}, "orders")
