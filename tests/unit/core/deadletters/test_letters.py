"""Dead letters as values: what is read, which are meant, where they go, and how fast."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.deadletters import death
from chronicle.core.deadletters.conditions import matches, parse_condition
from chronicle.core.deadletters.letter import Letter, letter_of
from chronicle.core.deadletters.moves import Go, RedrivePlan, Stay, Why, decide_move
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.rate_limit import RateLimit, parse_rate
from chronicle.engine.publication import in_batches

NOW = 1_772_446_272_000
DAY = 86_400_000
ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
BACK = RedrivePlan(frozenset("q"))
NAMES = (
    death.REASON,
    death.QUEUE,
    death.REDRIVES,
    death.LAST,
    death.ATTEMPTS,
    "x-death",
    "x-delivery-count",
    "k",
)


def dead(headers: dict[str, Any] | None = None, body: bytes = b"{}", fault: str = "") -> Delivery:
    return Delivery(body, queue="q.dlq", transport="memory", envelope=Envelope(headers or {}, {}, fault))


def letter(headers: dict[str, Any] | None = None, **message: Any) -> Letter:
    return letter_of(dead(headers, json.dumps(message).encode()), "q")


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING), st.binary(max_size=40))
def test_whatever_a_producer_forged_reads_as_something(headers: dict[str, Any], body: bytes) -> None:
    """Z16, RB11: total parsing; and a move is decided for every letter, never to the queue it is in."""
    read = letter_of(dead(headers, body), "q")
    move = decide_move(read, BACK, NOW)
    assert move in (Go("q"), Stay(Why.OFTEN), Stay(Why.ELSEWHERE))
    assert read.home != "q.dlq"
    back = death.revived(headers)
    assert not {*death.BROKERS, death.REASON, death.QUEUE} & back.keys()
    assert back[death.REDRIVES] <= death.MOST


def test_where_it_came_from() -> None:
    """The broker's word, else our header, else the queue that is asked about; never the dead-letter queue."""
    told = [{"queue": "q.dlq", "reason": "expired"}, {"queue": "main", "reason": "rejected", "count": 1}]
    assert letter({death.QUEUE: "ours", "x-death": told}).home == "main"
    waited = [{"queue": "ours.retry.5s", "reason": "expired", "count": 1}]
    assert letter({death.QUEUE: "ours", "x-death": waited}).home == "ours"
    assert letter({"x-death": [{"queue": "fail", "reason": "expired"}, *told]}).home == "main"
    assert letter({"x-death": [{"queue": "main", "reason": "expired"}]}).home == "main"
    assert letter({death.QUEUE: "q.dlq"}).home == "q"
    assert letter().home == "q"


def died(queue: str, rounds: int, reason: str = "rejected", at: int = NOW) -> dict[str, Any]:
    """A broker's entry in x-death."""
    return {"queue": queue, "reason": reason, "count": rounds, "time": at // 1000}


OURS = {death.REASON: "why", death.ATTEMPTS: 3, death.LAST: NOW - DAY}


@pytest.mark.parametrize(
    ("headers", "tries"),
    [
        ({}, 0),
        (OURS, 3),
        ({**OURS, "x-death": [died("q.retry.5s", 2, "expired", NOW - 2 * DAY)]}, 3),
        ({"x-death": [died("q", 1)]}, 0),
        ({"x-death": [died("q", 4)]}, 4),
        ({"x-death": [died("q", 4), died("fail", 3, "expired")]}, 4),
        ({**OURS, "x-death": [died("q", 1), died("q.retry.5s", 3, "expired")]}, 4),
        ({**OURS, "x-death": [died("q.dlq", 1, "expired"), died("q", 1)]}, 3),
        ({"x-death": [died("q", 1)], "x-delivery-count": 7}, 0),
    ],
)
def test_d_22_tries_are_those_of_the_log_or_not_told(headers: dict[str, Any], tries: int) -> None:
    """What the broker moved may have been one try or two; the count of the dead-letter queue is no help."""
    assert letter(headers).death.attempts == tries


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("reason=TIMEOUT", True),
        ("reason=false", False),
        ("id=1001", True),
        ("id=7, 1001", True),
        ("id=7", False),
        ("schema=proca:action:2", True),
        ("schema=proca:action", False),
        ("age>1d", True),
        ("age > 3d", False),
        ("age<3d", True),
        ("age<1d", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    one = letter(
        {death.REASON: "a timeout of the CRM", death.LAST: NOW - 2 * DAY},
        actionId=1001,
        schema="proca:action:2",
    )
    assert matches(one, [parse_condition(condition)], NOW) is holds


def test_all_conditions_must_hold_and_what_is_not_known_does_not_match() -> None:
    one = letter(actionId=1)
    assert matches(one, [], NOW)
    assert not matches(one, [parse_condition("id=1"), parse_condition("reason=x")], NOW)
    assert not matches(one, [parse_condition("age>1s")], NOW)
    assert not matches(one, [parse_condition("age<1s")], NOW)


@pytest.mark.parametrize(
    "text", ["", "id", "id=", "id=x", "id>1", "age=1d", "age>1", "colour=red", "reason=", "ID=1"]
)
def test_what_is_no_condition_says_what_it_takes(text: str) -> None:
    with pytest.raises(ValueError, match=r"[=<>]|duration"):
        parse_condition(text)


def test_moves() -> None:
    """The cap, unreadable headers, another queue."""
    assert decide_move(letter({death.REDRIVES: 2}), BACK, NOW) == Go("q")
    assert decide_move(letter({death.REDRIVES: 3}), BACK, NOW) == Stay(Why.OFTEN)
    assert decide_move(letter(), RedrivePlan(frozenset(), to="other"), NOW) == Go("other")
    assert decide_move(letter_of(dead(fault="bad"), "q"), BACK, NOW) == Stay(Why.UNREADABLE)
    assert decide_move(letter({death.QUEUE: "other"}), BACK, NOW) == Stay(Why.ELSEWHERE)
    both = RedrivePlan(frozenset(("q", "other")))
    assert decide_move(letter({death.QUEUE: "other"}), both, NOW) == Go("other")
    unmet = RedrivePlan(frozenset("q"), (parse_condition("id=1"),))
    assert decide_move(letter(actionId=2), unmet, NOW) == Stay(Why.OTHER)


def test_a_redriven_message_is_copied_nowhere_else() -> None:
    """RabbitMQ sends a copy to every queue that CC or BCC names, at each publish."""
    assert death.revived({"CC": ["a"], "BCC": ["b"], "k": 1}) == {"k": 1, death.REDRIVES: 1}


def test_what_is_published_again_has_all_its_tries_before_it() -> None:
    """An export carries the story of a death; on the queue it would count as tries."""
    died = dead({death.ATTEMPTS: 3, death.REASON: "r", "x-death": [{"count": 3}], death.REDRIVES: 1, "k": 1})
    ((sent,),) = in_batches([died])
    assert sent.headers == {death.REDRIVES: 1, "k": 1}


def test_a_death_after_our_last_failure_is_the_brokers_to_tell() -> None:
    seconds = NOW // 1000

    def told(at: int) -> death.Death:
        entry = {"queue": "q", "reason": "expired", "count": 1, "time": at}
        return death.death_of(dead({death.REASON: "ours", death.LAST: NOW, "x-death": [entry]}))

    assert (told(seconds + 60).reason, told(seconds + 60).last) == ("expired", NOW + 60_000)
    assert (told(seconds).reason, told(seconds).last) == ("ours", NOW)
    assert told(seconds - 60).reason == "ours"


def test_a_letter_that_fails_again_keeps_its_home_and_its_first_failure() -> None:
    before = dead({death.QUEUE: "q", death.FIRST: 5, death.ATTEMPTS: 2, "x-delivery-count": 4, "k": 1})
    headers = death.failed_again(before, "today's", "me", NOW, "q")
    assert headers == {
        death.QUEUE: "q",
        death.FIRST: 5,
        death.LAST: NOW,
        death.ATTEMPTS: 3,
        death.REASON: "today's",
        death.CONSUMER: "me",
        "k": 1,
    }


@given(
    st.floats(0.01, 5000),
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 200)), min_size=1, max_size=60),
)
def test_no_pace_is_exceeded(rate: float, steps: list[tuple[float, int]]) -> None:
    """In any stretch of time no more go than the rate allows, and a bucket's worth."""
    now, went = 0.0, []
    pace = RateLimit(rate, now)
    for pause, wanted in steps:
        now += pause
        room = pace.room(now, wanted)
        pace.spend(room)
        went.append((now, room))
    bucket = max(1.0, rate / 10)
    for first in range(len(went)):
        for last in range(first, len(went)):
            total = sum(room for _, room in went[first : last + 1])
            assert total <= bucket + (went[last][0] - went[first][0]) * rate + 1e-6


def test_a_pace_gets_there() -> None:
    pace = RateLimit(2.0, 0.0)
    assert pace.room(0.0, 100) == 1
    pace.spend(1)
    assert pace.room(0.0, 100) == 0
    assert pace.wait() == 0.5
    assert pace.room(0.5, 100) == 1
    assert RateLimit(float("inf"), 0.0).room(0.0, 100) == 100


def test_rates() -> None:
    assert [parse_rate(text) for text in ("50/s", "600/m", "36 / h")] == [50, 10, 0.01]
    for text in ("", "50", "0/s", "-1/s", "5/d", "1.5/s"):
        with pytest.raises(ValueError, match="a rate such as"):
            parse_rate(text)
