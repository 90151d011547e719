"""What masking costs: a producer chooses the message and most of the text, and must not choose the price.

Rule: no shape of message and text costs more than a fixed multiple of what an honest one costs, in time and
in memory, measured in the same run. A budget's worth of message is about thirty honest ones.
"""

from __future__ import annotations

import json
import random
import string
import tracemalloc
from collections.abc import Callable
from time import process_time
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.body import MAX_BODY
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.outcome import Failed
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import OnException, Policy
from chronicle.telemetry.redaction import mask, redact, trace_of
from chronicle.workers.handler import Handler
from chronicle_cli.commands.dlq.view import shown
from support import samples

MULTIPLE: Final = 250
HONEST_TEXT: Final = (
    "the CRM refused ada@example.org: 422 {'errors': {'postcode': ['is not valid']}} "
    "for https://crm.example.org/api/contacts?page=1, please try again later"
)
RANDOM: Final = random.Random(10)


def letters(length: int) -> str:
    return "".join(RANDOM.choices(string.ascii_lowercase, k=length))


def nested(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = {"d": inner}
    return inner


RARE: Final = "".join(map(chr, range(0x3400, 0xA000)))
FIVES: Final = [letters(5) for _ in range(4900)]
# Each is as large as it can be and still be looked through, or larger.
SHAPES: Final[dict[str, tuple[Any, str]]] = {
    "many short values": ({"contact": [letters(2) for _ in range(4900)]}, " ".join(FIVES)[:19_000]),
    "the text made of the values": ({"contact": FIVES}, " ".join(FIVES)[:19_900]),
    "equal values": ({"contact": ["abcd"] * 4900}, "abcd" * 4_900),
    "values that begin each other": ({"contact": ["a" * n for n in range(2, 250)]}, "a" * 19_900),
    "words that begin each other": (
        {"contact": " ".join("ab" * n for n in range(1, 150))},
        "ab" * 9_900,
    ),
    "one huge value": ({"v": letters(32_000)}, letters(19_900)),
    "one huge value of one letter": ({"contact": "x" * 32_000}, "x" * 19_900),
    "far too much": ({"v": letters(95_000)}, letters(19_900)),
    "many keys": ({f"k{n}": n for n in range(30_000)}, "k5 " * 6_000),
    "a hundred thousand keys": ({f"k{n}": n for n in range(100_000)}, "k5 " * 6_000),
    "telling keys": ({f"k {n}": f"v {n}" for n in range(2_400)}, "k 5 v 7 " * 2_400),
    "deep": (nested(190, "deep"), "deep " * 3_900),
    "deep and wide": (nested(190, {f"k{n}": "value" for n in range(4_800)}), "value " * 3_000),
    "many lists": ([[[]]] * 4_800, "x" * 19_900),
    "letters that fold to eighteen": ({"v": "\ufdfa" * 800}, "\ufdfa" * 19_900),
    "letters that fold to three": ({"v": "한국어" * 1_200}, "한국어" * 6_000),
    "rare letters": ({"v": RARE[:10_000]}, RARE[::-1][:19_900]),
    "percent in percent": ({"v": letters(32_000)}, "%2525" * 3_900),
    "escapes": ({"v": "\\u0041" * 5_000}, "\\u0041" * 3_300),
    "backslashes": ({"v": "\\" * 32_000}, "\\" * 19_900),
    "entities": ({"v": letters(32_000)}, "&amp;" * 3_900),
    "an endless address": ({"v": letters(32_000)}, "a" * 9_900 + "@" + "b" * 9_900),
    "at signs": ({"v": "@" * 32_000}, "a@" * 9_900),
    "tokens that never end": ({"v": letters(32_000)}, "eyJ-" * 4_900),
    "names of secrets": ({"v": letters(32_000)}, "pass" * 4_900),
    "quotes after names of secrets": ({"v": letters(32_000)}, "password=\\\"" * 1_800),
    "numbers": ({"v": list(range(10_000, 14_900))}, "1 22 333 " * 2_200),
    "text for regular expressions": ({"v": "(a+)+$" * 5_000}, "(a+)+$" * 3_300),
    "private keys that never end": ({"v": letters(32_000)}, "-----BEGIN PRIVATE KEY" * 900),
}  # fmt: skip


def cost(work: Callable[[], object]) -> tuple[float, int]:
    """The least seconds of a few tries, and the most bytes of one."""
    seconds = []
    for _ in range(3):
        started = process_time()
        work()
        seconds.append(process_time() - started)
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), peak


def honest_message() -> dict[str, Any]:
    message: dict[str, Any] = samples.message("action-plain.json")
    return message


def assert_bounded(hostile: Callable[[], object], honest: Callable[[], object]) -> None:
    seconds, memory = cost(hostile)
    least_seconds, least_memory = cost(honest)
    assert seconds < MULTIPLE * least_seconds
    assert memory < MULTIPLE * least_memory


@pytest.mark.parametrize("shape", SHAPES)
def test_no_message_and_no_text_makes_masking_expensive(shape: str) -> None:
    message, text = SHAPES[shape]
    honest = honest_message()
    assert_bounded(lambda: mask(text, message), lambda: mask(HONEST_TEXT, honest))


@pytest.mark.parametrize("shape", ["the text made of the values", "values that begin each other"])
def test_a_chain_of_errors_with_notes_costs_no_more_for_being_one(shape: str) -> None:
    message, text = SHAPES[shape]

    def chain(text: str) -> Exception:
        error: Exception = ValueError(text)
        for _ in range(60):
            after = RuntimeError(text)
            after.__cause__, after.__context__ = error, KeyError(text)
            after.add_note(text)
            error = after
        return ExceptionGroup(text, [error, *(LookupError(text) for _ in range(200))])

    hostile, usual, honest = chain(text), chain(HONEST_TEXT), honest_message()
    assert_bounded(lambda: trace_of(hostile, message), lambda: trace_of(usual, honest))
    assert len(trace_of(hostile, message)) < 8_100


@pytest.mark.parametrize("size", [30_000, 95_000, 2_000_000])
def test_a_message_whose_syncer_raises_it_is_settled_without_delay(size: int) -> None:
    """One of 95 KB cost 203 seconds and 7.4 GB."""

    def handled(message: dict[str, Any]) -> Callable[[], object]:
        def syncer(message: Any) -> bool:
            raise ValueError(message)

        body = json.dumps(message).encode()
        handler = Handler(
            Pipeline(Schema.JSON), Policy(on_exception=OnException.FAIL), syncer, takes_delivery=False
        )
        return lambda: handler.run(Delivery(body, queue="orders", transport="memory"))

    hostile = {"contact": [letters(5) for _ in range(size // 8)]}
    seconds, _ = cost(handled(hostile))
    least, _ = cost(handled(honest_message()))
    # What is left beside masking is linear: parsing, and the text that the syncer made itself.
    assert seconds < (MULTIPLE + size / 1_000) * least
    outcome = handled(hostile)().outcome  # type: ignore[attr-defined]
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("the syncer raised ValueError: ")
    assert not any(value in outcome.reason for value in hostile["contact"])


def test_a_dead_letter_with_a_long_reason_and_many_headers_is_shown_without_delay() -> None:
    """One with 20 KB of reason kept `dlq list` busy for 44 seconds."""

    def letter(message: Any, reason: str, names: int) -> Delivery:
        headers: dict[str, Any] = {f"name-{n}": n for n in range(names)}
        headers |= {"x-chronicle-reason": reason, "x-chronicle-queue": reason, "x-chronicle-consumer": reason}
        headers["x-death"] = [{"queue": reason, "reason": reason, "exchange": reason, "count": 1}] * 90
        body = json.dumps(message).encode()
        return Delivery(body, queue="orders.dlq", transport="memory", envelope=Envelope(headers))

    message, text = SHAPES["the text made of the values"]
    hostile, usual = letter(message, text, 5_000), letter(honest_message(), HONEST_TEXT, 5)
    assert_bounded(lambda: shown(hostile, "orders", MAX_BODY), lambda: shown(usual, "orders", MAX_BODY))


@pytest.mark.parametrize("shape", ["tokens that never end", "names of secrets", "an endless address"])
def test_no_text_makes_redacting_expensive(shape: str) -> None:
    text = SHAPES[shape][1] * 50
    assert_bounded(lambda: redact(text), lambda: redact(HONEST_TEXT))


names = st.text("abcdefghijklmnop", min_size=6, max_size=20)


@given(
    name=names,
    before=st.integers(0, 1_300),
    after=st.integers(0, 1_300),
    shrinks=st.booleans(),
)
def test_z5_a_value_is_found_wherever_a_long_text_is_cut(
    name: str, before: int, after: int, shrinks: bool
) -> None:
    """Also where the text is capped, and what stands before it becomes one short label."""
    message = {"contact": {"lastName": name, "comment": "zzzzzzzz"}}
    out = mask(("z" if shrinks else ".") * before + f" {name} " + "." * after, message)
    assert name[:6] not in out
    assert len(out) <= 300


@given(password=names, before=st.integers(0, 1_300), shrinks=st.booleans())
def test_z4_a_password_is_found_wherever_a_long_text_is_cut(
    password: str, before: int, shrinks: bool
) -> None:
    text = f"{'password=' if shrinks else ''}{'z' * before} amqp://me:{password}@broker.test/" + "." * 500
    assert password[:6] not in redact(text, 300)
