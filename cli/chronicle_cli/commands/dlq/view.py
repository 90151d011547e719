"""How dead letters are shown.

Rule 1 (D-21): ids, sizes, times and reasons; our headers and the broker's, and the names of all others.
        Anything else only with --reveal.
Rule 2 (Z16): a producer can write our headers too, so whatever in them also occurs in the message is masked.
Rule 3 (Z10): every text is free of control characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from chronicle.core.body import parse
from chronicle.core.deadletters.death import BROKERS, QUEUE
from chronicle.core.deadletters.letter import Letter, letter_of
from chronicle.core.delivery import Delivery, count, x_death
from chronicle.core.frozen import frozen
from chronicle.core.record import dump
from chronicle.core.units import format_duration
from chronicle.core.words import many
from chronicle.errors import InvalidMessage
from chronicle.proca.schema import ACTION, EVENT
from chronicle.telemetry.events import label, number
from chronicle.telemetry.redaction import Mask, clean

KNOWN: Final = (ACTION, EVENT)
OURS: Final = QUEUE.removesuffix("queue")  # what all headers of ours begin with
HARMLESS: Final = frozenset(
    ("rejected", "expired", "maxlen", "delivery_limit", "the syncer returned False", "")
)
TOO_LARGE: Final = re.compile(r"the body has [0-9]{1,20} bytes, the limit is [0-9]{1,20}")
# A time between 2001 and 2065 with a number, as Redis writes them; or a partition with an offset.
POSITION: Final = re.compile(r"[12][0-9]{12}-[0-9]{1,5}|[0-9]{1,6}:[0-9]{1,12}", re.ASCII)
SHOWN: Final = 10  # reasons in a summary
MOST_NAMES: Final = 50  # of headers; a producer may have written thousands
PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}")


@frozen
class Shown:
    """One dead letter as it may be shown to anybody who may run chronicle."""

    letter: Letter
    reason: str
    home: str
    consumer: str
    entry: str
    entry_before: str
    deaths: tuple[dict[str, Any], ...]
    others: tuple[str, ...]  # names of headers that are neither ours nor the broker's

    @property
    def schema(self) -> str:
        schema = self.letter.schema
        return schema if schema in KNOWN else "another schema" if schema else "no schema"

    def facts(self) -> dict[str, Any]:
        """For machines."""
        letter, death = self.letter, self.letter.death
        return {
            "action_id": None if letter.action_id is None else number(letter.action_id),
            "schema": letter.schema if letter.schema in KNOWN else None,
            "entry": self.entry or None,
            "entry_before": self.entry_before or None,
            "size": letter.size,
            "reason": self.reason,
            "came_from": self.home,
            "attempts": number(death.attempts) or None,
            "redrives": number(death.redrives),
            "consumer": self.consumer,
            "first_failed": moment(death.first),
            "died": moment(letter.died),
            "deaths": list(self.deaths),
            "other_headers": list(self.others),
            **({"fault": label(letter.fault)} if letter.fault else {}),
        }

    def lines(self, now: int) -> list[str]:
        """For people."""
        letter, death = self.letter, self.letter.death
        name = "no action id" if letter.action_id is None else f"action {number(letter.action_id)}"
        was = f" (before it died: {self.entry_before})" if self.entry_before else ""
        facts = {
            "entry": f"{self.entry}{was}",
            "died": ago(letter.died, now),
            "reason": self.reason or "not given",
            "came from": self.home,
            "tries": number(death.attempts) or "not recorded",
            "redriven": many(number(death.redrives), "time") if death.redrives else "",
            "consumer": self.consumer,
            "deaths": "; ".join(f"{d['queue']} {d['reason']} ×{d['count']}" for d in self.deaths),
            "headers": f"{', '.join(self.others)} (values with --reveal)" if self.others else "",
            "fault": label(letter.fault),
        }
        rows = [f"  {row:<10} {text}" for row, text in facts.items() if text]
        return [f"{name}, {self.schema}, {letter.size} bytes", *rows]


def shown(delivery: Delivery, queue: str, max_body: int) -> Shown:
    """What may be shown of this dead letter of `queue`; a larger body than `max_body` is not searched."""
    letter = letter_of(delivery, queue, max_body)
    mask = Mask(_message(delivery.body, max_body))

    def safe(value: object) -> str:
        text = value if isinstance(value, str) else ""
        harmless = text in HARMLESS or text == queue or TOO_LARGE.fullmatch(text)
        return text if harmless else mask(text)

    deaths = tuple(
        {
            "queue": safe(entry.get("queue")),
            "reason": safe(entry.get("reason")),
            "count": number(count(entry.get("count"))),
            "exchange": safe(entry.get("exchange")),
        }
        for entry in x_death(delivery.headers)[:5]
    )
    names = [name for name in delivery.headers if name not in BROKERS and not str(name).startswith(OURS)]
    plain = {str(name) if PLAIN_NAME.fullmatch(str(name)) else "…" for name in names}
    before = letter.entry_before
    return Shown(
        letter,
        safe(letter.death.reason),
        safe(letter.home),
        safe(letter.death.consumer),
        # The broker's own ids are numbers; a producer can write a message id, and our headers.
        letter.entry if "message_id" not in delivery.properties else safe(letter.entry),
        before if _is_position(before, delivery.body) else safe(before),
        deaths,
        tuple(sorted(safe(name) for name in sorted(plain)[:MOST_NAMES])),
    )


def summary(queue: str, dead: str, depth: int, looked_at: int, found: Sequence[Shown]) -> dict[str, Any]:
    """The dead letters in numbers; reasons beyond the most common ones are counted together."""
    reasons = Counter(one.reason or "not given" for one in found)
    died = [one.letter.died for one in found if one.letter.died is not None]
    common = dict(reasons.most_common(SHOWN))
    rest = reasons.total() - sum(common.values())
    return {
        "queue": queue,
        "dlq": dead,
        "depth": depth,
        "looked_at": looked_at,
        "matched": len(found),
        "oldest": moment(min(died, default=None)),
        "newest": moment(max(died, default=None)),
        "reasons": common | ({"other reasons": rest} if rest else {}),
        "schemas": dict(Counter(one.schema for one in found)),
        "came_from": dict(Counter(one.home for one in found).most_common(SHOWN)),
        "redriven_before": sum(bool(one.letter.death.redrives) for one in found),
    }


def summary_lines(facts: dict[str, Any], now: int, oldest: int | None) -> list[str]:
    """The same for people."""
    lines = [f"{facts['dlq']}: {counted(facts['depth'])} of {facts['queue']}"]
    if not facts["looked_at"]:
        return lines
    if facts["looked_at"] < facts["depth"]:
        lines.append(f"  looked at  the oldest {facts['looked_at']}, see --limit")
    if facts["matched"] < facts["looked_at"]:
        lines.append(f"  matched    {facts['matched']}")
    lines.append(f"  oldest     {ago(oldest, now)}")
    for heading in ("reasons", "schemas", "came_from"):
        for name, times in facts[heading].items():
            lines.append(f"  {heading.replace('_', ' '):<10} {times:>6}  {name}")
    if facts["redriven_before"]:
        lines.append(f"  redriven   {facts['redriven_before']:>6}  before")
    return lines


def revealed(record: dict[str, Any]) -> list[str]:
    """The whole record, for somebody who explicitly asked for it."""
    text = json.dumps(json.loads(dump(record)), indent=2, ensure_ascii=False)
    return [f"  {clean(line)}" for line in text.split("\n")]


def counted(times: int) -> str:
    return many(times, "dead letter")


def moment(milliseconds: int | None) -> str | None:
    """A time in UTC; a producer may have written any number."""
    try:
        return None if milliseconds is None else _utc(milliseconds).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def ago(milliseconds: int | None, now: int) -> str:
    when = moment(milliseconds)
    if when is None or milliseconds is None:
        return "unknown"
    minutes = max(0, now - milliseconds) // 60_000
    rounded = minutes - minutes % 60 if minutes >= 600 else minutes
    return f"{when}, {format_duration(rounded * 60.0) if minutes else 'less than 1m'} ago"


def _is_position(text: str, body: bytes) -> bool:
    """Whether this is a broker's own position: it looks like a telephone number, and must not be one."""
    return POSITION.fullmatch(text) is not None and not any(
        number.encode() in body for number in re.findall(r"\d{5,}", text)
    )


def _utc(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _message(body: bytes, max_body: int) -> Any:
    """What a text is masked with; raw bytes, which withhold it, if the body is too large to be searched."""
    if len(body) > max_body:
        return body
    try:
        return parse(body, max_body)
    except InvalidMessage:
        return None
