"""A stream entry as a delivery, and back: bytes stay what they are."""

from __future__ import annotations

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.record import to_record
from chronicle.errors import InvalidMessage
from chronicle.transports.redis.entries import (
    MOST_FIELDS,
    Claim,
    body_in,
    delivery_of,
    described,
    group_meant,
    moved,
    pairs_of,
    restored,
    timestamp_of,
)
from chronicle.transports.seam import Outgoing

USUAL = (b"data", b"payload")
NOW = 1_772_446_300_000


def delivery(*pairs: bytes, id_: bytes = b"1772446272000-0", count: int = 1) -> Delivery:
    return delivery_of(Claim(id_, count, pairs, 0.0), "orders", USUAL)


def fields_of(pairs: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(pairs[::2], pairs[1::2], strict=True))


# --- the body ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "body"),
    [
        ((b"data", b"x"), b"x"),
        ((b"payload", b"x"), b"x"),
        ((b"payload", b"later", b"data", b"x"), b"x"),  # data comes first, wherever it stands
        ((b"kind", b"order", b"payload", b"x"), b"x"),
        ((b"data", b"x", b"data", b"y"), b"x"),  # of two, the first
        ((b"kind", b"data", b"data", b"x"), b"x"),  # a value is no name
        ((b"data", b""), b""),
        ((b"data", b"\xff\x00\r\n"), b"\xff\x00\r\n"),
    ],
)
def test_the_body_is_the_first_field_of_the_chosen_name(pairs: tuple[bytes, ...], body: bytes) -> None:
    """D-14."""
    found = delivery(*pairs)
    assert (found.body, found.unread) == (body, "")
    assert body_in(pairs, USUAL) == body


def test_another_field_can_be_chosen() -> None:
    claim = Claim(b"1-0", 1, (b"data", b"not this", b"k\xc3\xb6rper", b"x"), 0.0)
    found = delivery_of(claim, "orders", ("körper".encode(),))
    assert (found.body, found.headers) == (b"x", {"data": "not this"})


def test_an_entry_without_a_body_is_bad_input() -> None:
    """It may be somebody else's: it is dead-lettered with all its fields, not taken for an empty message."""
    found = delivery(b"kind", b"order")
    assert found.body == b""
    assert found.unread == "the entry has no field data or payload; --field names another one"
    assert found.headers == {"kind": "order"}


# --- the other fields -------------------------------------------------------------------------------


def test_the_other_fields_are_headers() -> None:
    """R-001-23: text where it is UTF-8, else bytes; of two with the same name the last counts."""
    found = delivery(b"a", b"1", b"data", b"x", b"a", b"2", b"raw", b"\xff", b"gr\xc3\xbc\xc3\x9fe", b"")
    assert found.headers == {"a": "2", "raw": b"\xff", "grüße": ""}


def test_a_name_that_is_not_text_is_escaped() -> None:
    assert delivery(b"data", b"x", b"\xffk", b"v").headers == {"\\xffk": "v"}


def test_only_one_of_two_bodies_is_the_body() -> None:
    """The second is a header, even if it has the same value."""
    assert delivery(b"data", b"same", b"data", b"same").headers == {"data": "same"}
    assert delivery(b"data", b"x", b"payload", b"x").headers == {"payload": "x"}
    assert delivery(b"payload", b"x", b"data", b"x").headers == {"payload": "x"}


def test_chronicles_own_numbers_are_numbers() -> None:
    found = delivery(b"data", b"x", b"x-chronicle-attempts", b"3", b"x-chronicle-first-failed-at", b"1772446")
    assert found.headers == {"x-chronicle-attempts": 3, "x-chronicle-first-failed-at": 1772446}
    assert found.attempts == 4


@pytest.mark.parametrize(
    "forged", [b"9" * 19, b"9" * 5000, b"-1", b"1.5", b"\xff", b"", b"many", "٣".encode()]
)
def test_a_forged_number_is_no_number(forged: bytes) -> None:
    """Z16, X1: reading never fails, and nonsense counts as nothing."""
    found = delivery(b"data", b"x", b"x-chronicle-attempts", forged)
    assert not found.redelivered
    assert found.attempts == 1


# --- tries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "redelivered", "attempts"), [(1, False, 1), (2, True, 2), (20, True, 20)])
def test_the_delivery_count_says_which_try_it_is(count: int, redelivered: bool, attempts: int) -> None:
    """S4."""
    found = delivery(b"data", b"x", count=count)
    assert (found.redelivered, found.counted, found.attempts) == (redelivered, count - 1, attempts)


def test_an_entry_that_waited_brings_its_tries_along() -> None:
    """D-2: it is a new entry with a new count, and its field counts the tries before."""
    found = delivery(b"data", b"x", b"x-chronicle-attempts", b"4")
    assert (found.redelivered, found.attempts) == (True, 5)


def test_tries_before_and_after_add_up() -> None:
    """An entry that waited after four tries, and was taken over once since."""
    found = delivery(b"data", b"x", b"x-chronicle-attempts", b"4", count=2)
    assert (found.redelivered, found.attempts) == (True, 6)


def test_another_try_of_the_same_entry_has_a_proof_of_its_own() -> None:
    first = Claim(b"1-0", 1, (b"data", b"x"), 0.0)
    first.failed = NOW
    second = first.again(5.0)
    assert (second.id, second.count, second.pairs, second.failed) == (first.id, 2, first.pairs, NOW)
    first.end()
    assert not second.over


# --- ids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_", "timestamp"),
    [
        ("1772446272000-0", 1772446272000),
        ("0-1", 0),
        ("5", 5),
        ("999999999999999999-0", 999999999999999999),
        ("18446744073709551615-18446744073709551615", None),
        ("x-0", None),
        ("-1", None),
        ("", None),
    ],
)
def test_an_id_that_a_producer_chose_may_be_any_number(id_: str, timestamp: int | None) -> None:
    assert timestamp_of(id_) == timestamp


def test_a_record_names_the_stream_and_the_id() -> None:
    """D-14, R-001-23: the headers are called attributes."""
    record = to_record(delivery(b"data", b'{"id": 1}', b"kind", b"order", id_=b"5-3"))
    assert (record["stream"], record["id"], record["attributes"]) == ("orders", "5-3", {"kind": "order"})
    assert record["payload"]["json"] == {"id": 1}
    assert record["metadata"]["stream_id"] == "5-3"


# --- messages as fields -----------------------------------------------------------------------------


def test_a_message_as_the_fields_of_an_entry() -> None:
    message = Outgoing(
        b"\xff", {"kind": "grün", "raw": b"\xfe", "n": 3, "f": 0.5, "on": True, "list": [1, "a"]}
    )
    assert fields_of(pairs_of(message, b"data")) == [
        (b"data", b"\xff"),
        (b"kind", "grün".encode()),
        (b"raw", b"\xfe"),
        (b"n", b"3"),
        (b"f", b"0.5"),
        (b"on", b"true"),
        (b"list", b'[1,"a"]'),
    ]
    assert pairs_of(message, b"body", without=message.headers) == [b"body", b"\xff"]


def test_what_was_published_comes_back_as_it_was() -> None:
    pairs = pairs_of(Outgoing(b"\x00\xff", {"kind": "order", "raw": b"\xfe"}), b"payload")
    found = delivery(*pairs)
    assert (found.body, found.headers) == (b"\x00\xff", {"kind": "order", "raw": b"\xfe"})


@pytest.mark.parametrize("value", ["\ud800", object(), {"a": {1, 2}}])
def test_a_header_that_cannot_be_written_is_that_messages_problem(value: object) -> None:
    with pytest.raises(InvalidMessage, match="a header cannot be written as text"):
        pairs_of(Outgoing(b"x", {"k": value}), b"data")


def test_more_fields_than_a_script_passes_on() -> None:
    fits = {str(number): "" for number in range(MOST_FIELDS - 1)}
    assert len(pairs_of(Outgoing(b"x", fits), b"data")) == 2 * MOST_FIELDS
    with pytest.raises(InvalidMessage, match="more than 3000 headers"):
        pairs_of(Outgoing(b"x", {**fits, "one more": ""}), b"data")


# --- dead letters and retries -----------------------------------------------------------------------


def dead(found: Delivery, reason: str = "no") -> list[tuple[bytes, bytes]]:
    return fields_of(described(found, reason, consumer="host.sync", group="crm", now=NOW))


def test_a_dead_letter_has_the_fields_it_came_with_and_what_happened() -> None:
    """S6, Z6: duplicates, binary fields and their order, byte for byte."""
    pairs = (b"a", b"1", b"data", b"\xff", b"a", b"2", b"\xfe", b"\xfd", b"data", b"again")
    fields = dead(delivery(*pairs, id_=b"5-3", count=2))
    assert fields[:5] == fields_of(list(pairs))
    assert dict(fields[5:]) == {
        b"x-chronicle-reason": b"no",
        b"x-chronicle-attempts": b"2",
        b"x-chronicle-queue": b"orders",
        b"x-chronicle-consumer": b"host.sync",
        b"x-chronicle-first-failed-at": b"1772446300000",
        b"x-chronicle-last-failed-at": b"1772446300000",
        b"x-chronicle-id": b"5-3",
        b"x-chronicle-stream": b"orders",
        b"x-chronicle-group": b"crm",
    }
    assert len(fields) == 5 + 9


def test_a_new_failure_replaces_the_last_one() -> None:
    """A message that goes round for weeks does not grow, and keeps when it first failed."""
    once = dead(delivery(b"data", b"x"))
    pairs = [part for field in once for part in field]
    twice = described(delivery(*pairs, id_=b"6-0"), "again", consumer="other", group="crm", now=NOW + 5)
    assert len(twice) == len(pairs)
    fields = dict(fields_of(twice))
    assert (fields[b"x-chronicle-reason"], fields[b"x-chronicle-attempts"]) == (b"again", b"2")
    assert fields[b"x-chronicle-id"] == b"6-0"
    assert fields[b"x-chronicle-first-failed-at"] == str(NOW).encode()
    assert fields[b"x-chronicle-last-failed-at"] == str(NOW + 5).encode()


def test_the_first_failure_may_have_been_a_requeue_in_place() -> None:
    found = delivery(b"data", b"x", count=2)
    found.handle.failed = NOW - 700
    assert dict(dead(found))[b"x-chronicle-first-failed-at"] == str(NOW - 700).encode()


def test_a_forged_first_failure_in_the_future_counts_as_now() -> None:
    found = delivery(b"data", b"x", b"x-chronicle-first-failed-at", str(NOW * 10).encode())
    assert dict(dead(found))[b"x-chronicle-first-failed-at"] == str(NOW).encode()


def test_a_reason_has_an_end() -> None:
    assert len(dict(dead(delivery(b"data", b"x"), "ö" * 5000))[b"x-chronicle-reason"]) <= 500


# --- one group of one stream ------------------------------------------------------------------------


def test_what_failed_goes_back_for_one_group() -> None:
    pairs = [part for field in dead(delivery(b"data", b"x")) for part in field]
    assert group_meant(pairs, "orders") == b"crm"
    assert group_meant(pairs, "repair") is None  # elsewhere it is news to everybody
    assert group_meant((b"data", b"x"), "orders") is None
    assert group_meant((b"data", b"x", b"x-chronicle-group", b"crm"), "orders") is None


def test_an_entry_that_was_trimmed_is_put_back_with_all_its_fields() -> None:
    """S8."""
    pairs = (b"a", b"1", b"data", b"\xff", b"a", b"2", b"x-chronicle-group", b"old")
    fields = fields_of(restored(delivery(*pairs).handle, "orders", "crm"))
    assert fields == [
        (b"a", b"1"),
        (b"data", b"\xff"),
        (b"a", b"2"),
        (b"x-chronicle-stream", b"orders"),
        (b"x-chronicle-group", b"crm"),
    ]


def test_an_entry_that_moves_keeps_its_bytes_and_gets_chronicles_new_fields() -> None:
    """Z6: a redrive passes on duplicates and binary fields that headers could not tell apart."""
    found = delivery(b"a", b"1", b"data", b"\xff", b"a", b"\xfe", b"x-chronicle-reason", b"no")
    message = Outgoing(b"\xff", {"a": b"\xfe", "x-chronicle-redrives": 1})
    fields = fields_of(moved(found, found.handle, message, (b"data",)))
    assert fields == [(b"a", b"1"), (b"data", b"\xff"), (b"a", b"\xfe"), (b"x-chronicle-redrives", b"1")]
