"""The options that only Redis has, and the rules between them. Pure.

Rule: a choice that would have no effect is refused: who names a group for channels has misunderstood
        something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from chronicle.core.frozen import frozen
from chronicle.errors import SettingError
from chronicle.transports.redis.options import LIVELY, Mode

ID: Final = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


@frozen
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
