"""`chronicle capture` of a topic: what the group has not settled, or from a place on; and no trace of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.core.record import from_record
from chronicle.transports.kafka.ledger import Ledger
from support.cli import Said, run
from support.fixtures import Kafka
from support.topics import Topics

THEN: Final = 1_772_446_272_000  # 2026-03-02T10:11:12Z


class Place:
    """A topic with two partitions, and what is captured of it."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.topics: Topics = kafka.topics
        self.topic = self.topics.make(self.topics.name("capture"), 2)
        self._url = kafka.url
        self._folder = folder
        self._files = 0

    @property
    def group(self) -> str:
        return f"chronicle.{self.topic}"

    def capture(self, *args: str) -> list[dict[str, Any]]:
        """The records of a copy."""
        self._files += 1
        name = f"copy{self._files}.jsonl"
        said = self.try_to_capture(name, *args)
        assert said.code == 0, said.err
        return [json.loads(line) for line in (self._folder / name).read_text().splitlines()]

    def try_to_capture(self, *args: str) -> Said:
        env = {"CHRONICLE_URL": self._url}
        return run("capture", "--queue", self.topic, *args, cwd=self._folder, env=env)


@pytest.fixture
def place(kafka: Kafka, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path)


def values(records: list[dict[str, Any]]) -> list[bytes]:
    return [from_record(record).body for record in records]


def test_a_copy_has_everything_and_leaves_everything(place: Place) -> None:
    """Z6: keys, headers and bytes that are no text, and a record without a value; oldest first."""
    headers = [("h", b"\xff\x00"), ("t", b"text")]
    sent = {b"\xfe": b"\xff\x00", b"k": None, b"e": b"", b"j": b"{}"}
    for number, (key, value) in enumerate(sent.items()):
        place.topics.publish(
            place.topic, value, keys=[key], headers=headers, partition=number % 2, timestamp=THEN + number
        )
    before = place.topics.records(place.topic)
    copied = [from_record(record) for record in place.capture()]
    assert [one.origin["key"] for one in copied] == list(sent)
    assert [one.body for one in copied] == [value or b"" for value in sent.values()]
    assert [bool(one.properties.get("tombstone")) for one in copied] == [False, True, False, False]
    assert [dict(one.headers) for one in copied] == [{"h": b"\xff\x00", "t": "text"}] * 4
    assert [one.timestamp for one in copied] == [THEN, THEN + 1, THEN + 2, THEN + 3]
    assert place.topics.records(place.topic) == before
    assert place.topics.committed(place.group, place.topic) == {}
    assert place.topics.members(place.group) == []


def test_what_the_group_has_settled_is_not_copied(place: Place) -> None:
    """Also what it settled beyond its offset."""
    place.topics.publish(place.topic, *(b"%d" % number for number in range(10)), partition=0)
    ledger = Ledger(0)
    for offset in range(10):
        ledger.deliver(offset)
    for offset in (0, 1, 4, 7, 8):
        ledger.settle(offset)
    assert ledger.watermark == 2
    place.topics.commit(place.group, place.topic, {0: 2}, ledger.metadata())
    committed = place.topics.committed(place.group, place.topic)
    assert values(place.capture()) == [b"2", b"3", b"5", b"6", b"9"]
    assert values(place.capture("--limit", "2")) == [b"2", b"3"]
    assert len(place.capture("--group", "somebody.else")) == 10
    assert len(place.capture("--from", "start")) == 10
    assert place.topics.committed(place.group, place.topic) == committed


def test_gaps_are_no_messages_that_somebody_holds(place: Place) -> None:
    """K2: an aborted record, and the markers of transactions."""
    own: dict[str, str | int | bool] = {"transactional.id": place.topic, "enable.idempotence": True}
    with place.topics.producer(**own, **{"message.send.max.retries": 5}) as producer:
        producer.init_transactions(30)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce(place.topic, b"one", partition=0)
            producer.flush(30)
            end(30)
    said = place.try_to_capture("copy.jsonl")
    assert said.code == 0
    assert "1 message of" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("start", 0), ("end", 6), (str(THEN + 3000), 3), ("2026-03-02T10:11:16+00:00", 4),
        ("2027-01-01T00:00:00Z", 6),
    ],
)  # fmt: skip
def test_a_copy_begins_where_it_is_told(place: Place, start: str, first: int) -> None:
    for number in range(6):
        place.topics.publish(
            place.topic, b"%d" % number, partition=number % 2, timestamp=THEN + 1000 * number
        )
    assert values(place.capture("--from", start)) == [b"%d" % number for number in range(first, 6)]


def test_somebody_elses_metadata_is_not_ours(place: Place) -> None:
    place.topics.publish(place.topic, b"0", b"1", b"2", partition=0)
    place.topics.commit(place.group, place.topic, {0: 1}, "host-7 was here")
    assert values(place.capture()) == [b"1", b"2"]


def test_offsets_beyond_the_end_are_of_another_topic(place: Place) -> None:
    """It was deleted and made anew: everything in it waits."""
    place.topics.publish(place.topic, b"0", b"1", partition=0)
    place.topics.commit(place.group, place.topic, {0: 1000})
    assert values(place.capture()) == [b"0", b"1"]


def test_a_topic_that_is_not_there_is_named(place: Place) -> None:
    missing = place.try_to_capture("x.jsonl", "--queue", f"{place.topic}.not")
    assert missing.code == 2
    assert f"{place.topic}.not" in missing.err
