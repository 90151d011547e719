"""The options that only Redis has, and the rules between them. Pure.

Rule: a choice that would have no effect is refused: who names a group for channels has misunderstood
        something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from chronicle.errors import SettingError
from chronicle.transports.broker import BrokerOption, OptionKind

ID: Final = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")
LIVELY: Final = 2.0  # seconds; a consumer may be silent that long, so nothing is claimed sooner


class Mode(StrEnum):
    """What the queue is."""

    STREAM = "stream"
    PUBSUB = "pubsub"


def _for(*commands: str) -> frozenset[str]:
    return frozenset(commands)


OPTIONS: Final = (
    BrokerOption(
        name="mode",
        kind=OptionKind.CHOICE,
        values=tuple(Mode),
        usual=Mode.STREAM,
        commands=_for("consume", "capture", "publish", "declare", "dlq"),
        help="What the queue is. stream: an entry waits until it is acknowledged. pubsub: one or more "
        "channels, separated by commas, patterns with *?[ allowed; at most once: what is published while "
        "nobody listens, or is not finished, is lost.",
    ),
    BrokerOption(
        name="group",
        metavar="NAME",
        usual="chronicle",
        commands=_for("consume", "capture", "declare", "dlq"),
        help="The consumer group. consume and declare create a missing one, which begins with the oldest "
        "entry of the stream.",
    ),
    BrokerOption(
        name="no_group",
        kind=OptionKind.FLAG,
        commands=_for("consume", "capture"),
        help="Read the stream without a group: nothing is acknowledged, and every such consumer gets every "
        "entry.",
    ),
    BrokerOption(
        name="from",
        metavar="start|end|ID",
        usual="start",
        commands=_for("consume", "declare"),
        help="Where to begin in the stream: for a group that is created, or without a group.",
    ),
    BrokerOption(
        name="cursor",
        metavar="KEY",
        commands=_for("consume"),
        help="Without a group: keep the position in this key, so that the next run continues there.",
    ),
    BrokerOption(
        name="field",
        metavar="NAME",
        usual="data, else payload",
        commands=_for("consume", "capture", "publish", "dlq"),
        help="The field of an entry that has the message; the others are its headers.",
    ),
    BrokerOption(
        name="claim_idle",
        kind=OptionKind.DURATION,
        metavar="DURATION",
        usual="60s",
        commands=_for("consume"),
        help="Take over entries that another consumer of the group has not touched for this long: it is "
        "dead. A consumer touches what it holds all the time, however slow the syncer is. At least "
        f"{LIVELY:g}s are waited in any case.",
    ),
    BrokerOption(
        name="maxlen",
        kind=OptionKind.COUNT,
        metavar="N",
        commands=_for("publish"),
        help="Trim the stream to about this many entries, the oldest first, whether or not they were read.",
    ),
)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose, or the defaults."""

    mode: Mode = Mode.STREAM
    group: str | None = "chronicle"  # None: without one
    start: str = "0"  # an id, or $ for the end
    cursor: str = ""
    fields: tuple[bytes, ...] = (b"data", b"payload")  # the body is the first of these that is there
    claim_idle: float = 60.0
    maxlen: int | None = None


def choices_of(chosen: Mapping[str, Any]) -> Choices:
    """Read the choices; SettingError for one that is wrong, or has no effect next to another."""
    usual = Choices()
    mode = Mode(chosen.get("mode", usual.mode))
    if mode is Mode.PUBSUB:
        for name in ("group", "no_group", "from", "cursor", "field", "claim_idle", "maxlen"):
            if chosen.get(name):
                raise SettingError(f"{_flag(name)} has no effect with --mode pubsub", "leave it out")
    alone = bool(chosen.get("no_group"))
    if alone and chosen.get("group"):
        raise SettingError("--group together with --no-group", "leave one of them out")
    if alone and chosen.get("claim_idle"):
        raise SettingError(
            "--claim-idle has no effect with --no-group", "only a group knows what others hold"
        )
    if chosen.get("cursor") and not alone:
        raise SettingError("--cursor without --no-group", "a group keeps its position itself")
    return Choices(
        mode=mode,
        group=None if alone else _name("group", chosen) or usual.group,
        start=_start(chosen.get("from", "start")),
        cursor=_name("cursor", chosen),
        fields=(_name("field", chosen).encode(),) if "field" in chosen else usual.fields,
        claim_idle=max(chosen.get("claim_idle", usual.claim_idle), LIVELY),
        maxlen=chosen.get("maxlen"),
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _name(option: str, chosen: Mapping[str, Any]) -> str:
    name: str = chosen.get(option, "")
    if option in chosen and (
        not name or not name.isprintable() or len(name.encode("utf-8", "replace")) > 255
    ):
        raise SettingError(
            f"{_flag(option)} is empty, too long, or contains control characters",
            f"give {_flag(option)} a plain name of at most 255 bytes",
        )
    return name


def _start(text: str) -> str:
    if text in ("start", "end"):
        return "0" if text == "start" else "$"
    if ID.fullmatch(text) is None:
        raise SettingError(
            "--from takes start, end or the id of an entry", "for example --from 1772446272000-0"
        )
    return text
