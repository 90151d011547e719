"""What the options that only Kafka has mean. Pure.

Rule: a group has one topic. The default names both, because members of one group with different topics
        disturb each other at every rebalance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from chronicle.core.frozen import frozen
from chronicle.core.queues import dead_letter_queue
from chronicle.errors import SettingError

TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
MILLISECONDS: Final = re.compile(r"[0-9]{12,15}")  # from 1973 on: ten digits are seconds, eight a date
LONGEST_NAME: Final = 255
MOST_PARTITIONS: Final = 100_000
MOST_REPLICAS: Final = 1_000


class Edge(StrEnum):
    """One of the two ends of a topic."""

    START = "start"
    END = "end"


Start: TypeAlias = Edge | int  # an end of the topic, or milliseconds since 1970


@frozen
class Choices:
    """What the operator chose, or the defaults."""

    group: str
    start: Start | None = None  # None: not chosen
    key: tuple[str, ...] = ()  # where in a message its key is; empty: nowhere
    partitions: int | None = None  # None: the cluster's default
    replication: int | None = None


def choices_of(chosen: Mapping[str, Any], queue: str) -> Choices:
    """Read the choices; SettingError for one that is wrong, and for a queue that cannot be a topic."""
    check_topic(queue)
    return Choices(
        group=_name("group", chosen) or f"chronicle.{queue}",
        start=_start(chosen["from"]) if "from" in chosen else None,
        key=_path(chosen["key"]) if "key" in chosen else (),
        partitions=_at_most("partitions", chosen, MOST_PARTITIONS),
        replication=_at_most("replication", chosen, MOST_REPLICAS),
    )


def check_topic(queue: str) -> None:
    """SettingError for a name that no topic can have, or none with a dead-letter topic beside it."""
    if TOPIC.fullmatch(queue) is None or queue in (".", ".."):
        raise SettingError(
            "--queue is no name of a topic", "a topic's name has 1 to 249 of the letters A-Z a-z 0-9 . _ -"
        )


def dead_letter_topic(queue: str) -> str:
    """Where the dead letters of a topic are kept; SettingError when no topic can have that name."""
    topic = dead_letter_queue(queue)
    if TOPIC.fullmatch(topic) is None:
        raise SettingError(
            "--queue is too long for a dead-letter topic beside it", "its name has room for 245 letters"
        )
    return topic


def _name(option: str, chosen: Mapping[str, Any]) -> str:
    name: str = chosen.get(option, "")
    if option in chosen and (
        not name or not name.isprintable() or len(name.encode("utf-8", "replace")) > LONGEST_NAME
    ):
        raise SettingError(
            f"--{option} is empty, too long, or contains control characters",
            f"give --{option} a plain name of at most {LONGEST_NAME} bytes",
        )
    return name


def _start(text: str) -> Start:
    if text in tuple(Edge):
        return Edge(text)
    if MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None or moment.timestamp() < 0:
            raise ValueError
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise SettingError(
            "--from takes start, end, a time with its zone, or milliseconds since 1970",
            "for example --from 2026-03-01T12:00:00Z",
        ) from None


def _path(text: str) -> tuple[str, ...]:
    names = tuple(text.split("."))
    if not text.isprintable() or not all(names) or len(text) > LONGEST_NAME:
        raise SettingError(
            "--key takes the names of fields, with dots between them", "for example --key contact.contactRef"
        )
    return names


def _at_most(option: str, chosen: Mapping[str, Any], most: int) -> int | None:
    number: int | None = chosen.get(option)
    if number is not None and number > most:
        raise SettingError(f"--{option} takes at most {most}", "check the number")
    return number
