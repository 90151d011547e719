"""Dead letters at Kafka: a topic keeps its records, and the group of the dead letters says which are gone."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from chronicle.core.deadletters.death import REDRIVES
from chronicle.core.delivery import Delivery
from chronicle.errors import BrokerRefused, ConnectionLost
from chronicle.transports.batches import BATCH
from chronicle.transports.catalog import open_reader
from chronicle.transports.kafka.metadata import read
from chronicle.transports.seam import Connector, Reader, Reading
from support.deadhouse import KafkaHouse, action, at_kafka
from support.fixtures import Kafka, StartChronicle
from support.topics import Topics
from support.waiting import wait_for

PATIENCE: Final = 60.0
SYNCER: Final = """
def odd(message):
    return message["actionId"] % 2 == 1
"""
Open = Callable[[], Reader]


@pytest.fixture
def house(kafka: Kafka, tmp_path: Path) -> KafkaHouse:
    """A topic with three partitions, and as many for its dead letters."""
    (tmp_path / "crm.py").write_text(SYNCER)
    return at_kafka(kafka.topics, kafka.url, tmp_path, partitions=3)


@pytest.fixture
def opened(house: KafkaHouse) -> Iterator[Open]:
    """Opens readers of the dead letters, and closes them after the test."""
    made: list[Reader] = []

    def open_one() -> Reader:
        reader = open_reader(Connector(house.url, house.dlq), Reading())
        made.append(reader)
        reader.open(lambda: False)
        return reader

    yield open_one
    for reader in made:
        reader.close()


def group_of(topic: str) -> str:
    return f"chronicle.{topic}"


def rest(reader: Reader) -> list[Delivery]:
    found: list[Delivery] = []
    while (batch := reader.read(500, 5.0)) is not None:
        found += batch
    return found


def numbers(bodies: list[bytes]) -> Counter[int]:
    return Counter(int(json.loads(body)["actionId"]) for body in bodies)


def redriven(house: KafkaHouse) -> Counter[int]:
    """What is on the topic, settled or not."""
    return numbers(house.topics.bodies(house.queue))


def groups(topics: Topics) -> set[str]:
    with topics.admin() as admin:
        return {group.group_id for group in admin.list_consumer_groups().result(30).valid}


def die(house: KafkaHouse, *ids: int) -> None:
    """Dead letters of these actions, spread over the partitions."""
    headers = [("x-chronicle-queue", house.queue.encode()), ("x-chronicle-reason", b"it failed")]
    house.topics.publish(
        house.dlq, *map(action, ids), keys=[b"%d" % number for number in ids], headers=headers
    )


def test_looks_leave_no_trace(house: KafkaHouse) -> None:
    """D-21: no offsets, no members, no group; and the letters are there as before."""
    die(house, *range(30))
    before = house.topics.records(house.dlq)
    for look in (
        ("list",), ("show", "--limit", "3"), ("export", "dead.jsonl"), ("redrive", "--dry-run"),
        ("list", "--json"),
    ):  # fmt: skip
        said = house.dlq_command(*look)
        assert said.code == 0, said.err
    assert json.loads(said.out)["depth"] == 30
    assert house.topics.committed(group_of(house.dlq), house.dlq) == {}
    assert group_of(house.dlq) not in groups(house.topics)
    assert house.topics.records(house.dlq) == before
    assert len((house.folder / "dead.jsonl").read_text().splitlines()) == 30


def test_some_out_of_the_middle_and_later_the_others(house: KafkaHouse) -> None:
    """Each run takes what is left; what came meanwhile is there for the next one."""
    die(house, *range(60))
    assert house.dlq_command("redrive", "--match", "id=7,21,22,23,40").code == 0
    assert redriven(house) == Counter((7, 21, 22, 23, 40))
    assert house.depth(house.dlq) == 55
    assert house.dlq_command("drop", "--yes", "--no-export", "--match", "id=8,41").code == 0
    assert house.dlq_command("redrive", "--limit", "10").code == 0
    assert house.depth(house.dlq) == 43
    die(house, 60, 61)
    assert house.dlq_command("redrive", "--match", "id=60").code == 0
    assert house.dlq_command("redrive").code == 0
    assert redriven(house) == Counter(number for number in range(62) if number not in (8, 41))
    assert house.dlq_command("list").out == f"{house.dlq}: 0 dead letters of {house.queue}\n"
    # All are settled, so the offsets alone say so.
    committed = house.topics.committed(group_of(house.dlq), house.dlq)
    assert committed == {number: (end, "") for number, end in house.topics.ends(house.dlq).items() if end}
    assert house.topics.members(group_of(house.dlq)) == []


def test_keys_headers_and_bytes_come_back_as_they_were(house: KafkaHouse) -> None:
    """Z6: also what is not text, a name that occurs twice, and a record without a value."""
    mine = [("k", b"v"), ("raw", b"\xff\x00"), ("k", b"again"), ("nothing", None)]
    death: list[tuple[str, bytes | None]] = [
        ("x-chronicle-queue", house.queue.encode()), ("x-chronicle-reason", b"r"),
        ("x-chronicle-attempts", b"3"), ("x-chronicle-partition", b"2"), ("x-chronicle-offset", b"17"),
    ]  # fmt: skip
    values = (b"\xff\x00 not json", None, b"", b"{}")
    keys = (b"\xfe key", b"gone", None, "ä@example.org".encode())
    house.topics.publish(house.dlq, *values, keys=keys, headers=[*mine, *death])
    assert house.dlq_command("redrive").code == 0
    back = house.topics.records(house.queue)
    assert Counter((one.key, one.value) for one in back) == Counter(zip(keys, values, strict=True))
    kept = [("k", b"v"), ("k", b"again"), ("raw", b"\xff\x00"), ("nothing", None), (REDRIVES, b"1")]
    for one in back:
        assert list(one.headers) == kept


def test_markers_of_transactions_are_no_letters(house: KafkaHouse, kafka: Kafka) -> None:
    """K2: the last offsets of a partition are not records; nobody waits for them, and they are passed."""
    server = kafka.server
    with server.topics.producer(**transactional(house.dlq)) as producer:
        producer.init_transactions(30)
        for done, ids in ((True, (1, 2)), (False, (3,)), (True, (4,))):
            producer.begin_transaction()
            for number in ids:
                producer.produce(house.dlq, action(number), partition=0)
            producer.flush(30)
            producer.commit_transaction(30) if done else producer.abort_transaction(30)
    began = time.monotonic()
    facts = json.loads(house.dlq_command("list", "--json").out)
    assert (facts["looked_at"], facts["depth"]) == (3, 3)
    for run in (
        ("export", "dead.jsonl"), ("redrive", "--verify", "crm:odd", "--yes", "--match", "id=5"),
        ("redrive", "--match", "id=2"), ("redrive", "--to", house.queue),
    ):  # fmt: skip
        said = house.dlq_command(*run)
        assert said.code == 0, said.err
        assert "still in" not in said.err
    assert time.monotonic() - began < 30
    assert redriven(house) == Counter((1, 2, 4))
    assert house.topics.ends(house.dlq)[0] == 7
    ((offset, metadata),) = house.topics.committed(group_of(house.dlq), house.dlq).values()
    assert (offset, metadata) == (house.topics.ends(house.dlq)[0], "")
    assert house.depth(house.dlq) == 0


def test_a_transaction_that_is_open_holds_nobody_up(house: KafkaHouse, kafka: Kafka) -> None:
    """What it wrote is not there yet; what follows it neither."""
    server = kafka.server
    house.topics.publish(house.dlq, action(1), partition=0)
    with server.topics.producer(**transactional(house.dlq)) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(house.dlq, action(2), partition=0)
        producer.flush(30)
        house.topics.publish(house.dlq, action(3), partition=0)
        assert house.dlq_command("redrive", "--to", house.queue).code == 0
        assert redriven(house) == Counter((1,))
        producer.commit_transaction(30)
    assert house.dlq_command("redrive", "--to", house.queue).code == 0
    assert redriven(house) == Counter((1, 2, 3))


def test_verify_leaves_the_failing_ones_at_the_end(house: KafkaHouse) -> None:
    """Those that died again are new records with the new reason; the old ones are gone."""
    die(house, *range(20))
    said = house.dlq_command("redrive", "--verify", "crm:odd", "--yes", "--concurrency", "4")
    assert (said.code, said.out) == (
        1, "10 dead letters handled and removed, 10 stay with their new reason\n"
    )  # fmt: skip
    assert house.depth(house.dlq) == 10
    left = house.take(house.dlq)
    assert sorted(one.id for one in left) == list(range(0, 20, 2))
    assert {one.headers["x-chronicle-reason"] for one in left} == {"the syncer returned False"}
    keys = {record.key for record in house.topics.records(house.dlq)[20:]}
    assert keys <= {b"%d" % number for number in range(20)}


def test_a_redrive_killed_again_and_again_loses_nothing(
    house: KafkaHouse, chronicle: StartChronicle, luck: Random
) -> None:
    """F1: lost 0; a kill doubles at most the batch that was under way."""
    everything, kills = 3000, 4
    die(house, *range(everything))
    for _ in range(kills):
        aim = sum(house.topics.ends(house.queue).values()) + luck.randrange(50, 600)
        process = chronicle("dlq", "redrive", *house.where, "--rate", "3000/s", env=house.env)
        wait_for(
            lambda: sum(house.topics.ends(house.queue).values()) >= aim or not process.running,  # noqa: B023
            PATIENCE,
            "some to be moved",
            every=0,
        )
        process.kill()
        assert house.depth(house.dlq) + sum(house.topics.ends(house.queue).values()) >= everything
    assert house.dlq_command("redrive").code == 0
    found = redriven(house)
    assert sorted(found) == list(range(everything))
    assert found.total() - everything <= kills * BATCH
    assert house.depth(house.dlq) == 0


def test_brokers_that_go_away_lose_nothing(
    house: KafkaHouse, kafka: Kafka, chronicle: StartChronicle
) -> None:
    """Exit 3 after a bounded time; another run does the rest."""
    server = kafka.server
    die(house, *range(2000))
    run = chronicle(
        "dlq", "redrive", *house.where, "--rate", "1000/s", env={"CHRONICLE_URL": server.proxied_url}
    )
    wait_for(lambda: sum(house.topics.ends(house.queue).values()) >= 200, PATIENCE, "some to be moved")
    try:
        server.proxy.refuse()
        server.proxy.cut()
        assert run.wait(90) == 3, run.stderr
    finally:
        server.proxy.accept()
    assert "run it again" in run.stderr
    assert house.dlq_command("redrive").code == 0
    found = redriven(house)
    assert sorted(found) == list(range(2000))
    assert found.total() - 2000 <= 2 * BATCH


def test_a_broker_that_does_not_answer_is_not_waited_for_forever(
    house: KafkaHouse, kafka: Kafka, opened: Open
) -> None:
    """A commit of the client's own would hang for as long as the broker does."""
    server = kafka.server
    die(house, 1, 2)
    reader = opened()
    found = rest(reader)
    began = time.monotonic()
    server.freeze()
    try:
        with pytest.raises(ConnectionLost):
            reader.remove(found[:1])
        reader.close()
        assert time.monotonic() - began < 30
    finally:
        server.thaw()
    server.await_ready()
    assert house.depth(house.dlq) in (1, 2)


def test_two_at_once_remember_what_both_removed(house: KafkaHouse, opened: Open) -> None:
    """What is settled is read again before each commit, so neither takes back what the other did."""
    die(house, *range(40))
    one, other = opened(), opened()
    mine, theirs = rest(one), rest(other)
    one.remove([letter for letter in mine if number_of(letter) % 4 == 0])
    other.remove([letter for letter in theirs if number_of(letter) % 4 == 1])
    one.remove([letter for letter in mine if number_of(letter) % 4 == 2])
    one.remove([letter for letter in mine if number_of(letter) in (0, 1)])  # gone already
    assert sorted(one.id for one in house.take(house.dlq)) == [
        number for number in range(40) if number % 4 == 3
    ]


@pytest.mark.parametrize("mine", [0, 1], ids=["another partition", "the same partition"])
def test_what_died_and_was_removed_by_another_meanwhile_stays_removed(
    house: KafkaHouse, opened: Open, mine: int
) -> None:
    """What the other has committed lies beyond the end that we saw, and the topic is the same."""
    for partition in range(2):
        house.topics.publish(house.dlq, *map(action, range(10)), partition=partition)
    before = opened()
    before.remove([one for one in rest(before) if number_of(one) < 3 and one.origin["partition"] == 1])
    slow = opened()
    found = [one for one in rest(slow) if one.origin["partition"] == mine]
    house.topics.publish(house.dlq, *map(action, range(10, 15)), partition=1)
    other = opened()
    other.remove([one for one in rest(other) if one.origin["partition"] == 1])
    slow.remove(found[:1])
    assert house.topics.committed(group_of(house.dlq), house.dlq)[1] == (15, "")
    assert {one.origin["partition"] for one in rest(opened())} == {0}


def test_letters_of_a_group_that_somebody_consumes_in_cannot_be_removed(
    house: KafkaHouse, opened: Open
) -> None:
    """The brokers refuse it, and the error says what to do; a look is allowed."""
    die(house, 1, 2, 3)
    group = group_of(house.dlq)
    with house.topics.consumer(group, **{"enable.auto.commit": False}) as member:
        member.subscribe([house.dlq])
        wait_for(lambda: member.poll(0.1) is None and house.topics.members(group), PATIENCE, "a member")
        reader = opened()
        found = rest(reader)
        with pytest.raises(BrokerRefused, match="somebody consumes in the group"):
            reader.remove(found[:1])
        said = house.dlq_command("drop", "--yes", "--no-export")
        assert said.code == 2
        assert group in said.err
    assert house.depth(house.dlq) == 3


def test_what_cannot_be_remembered_is_told_and_seen_again(house: KafkaHouse, opened: Open) -> None:
    """There is room for a bit per letter, some twenty thousand of them; what stays is never lost."""
    everything = 26_000
    house.topics.publish(house.dlq, *(b"%d" % number for number in range(everything)), partition=0)
    reader = opened()
    found = rest(reader)
    assert len(found) == everything
    reader.remove(found[1::2])
    assert [notice.event for notice in reader.notices] == ["kafka.removal_forgotten", "kafka.removal_expires"]
    ((offset, metadata),) = house.topics.committed(group_of(house.dlq), house.dlq).values()
    reach = read(offset, metadata)[-1][1]
    assert reach > 20_000
    again = {int(letter.body) for letter in rest(opened())}
    assert again == {number for number in range(everything) if number % 2 == 0 or number >= reach}
    # With the older ones gone there is room again.
    reader.remove(found[0:20_000:2])
    assert house.depth(house.dlq) == (everything - 20_000) // 2


def test_the_brokers_forget_what_was_removed_and_are_reminded(house: KafkaHouse) -> None:
    """K2: after `offsets.retention.minutes` without a commit; each removal is one for all partitions."""
    for partition in range(3):
        house.topics.publish(house.dlq, *map(action, range(3)), partition=partition)
    reader = open_reader(Connector(house.url, house.dlq), Reading())
    for partition in range(2):
        reader.open(lambda: False)
        reader.remove([one for one in rest(reader) if one.origin["partition"] == partition])
    (told,) = [notice for notice in reader.notices if notice.event == "kafka.removal_expires"]
    assert "7 days" in told.text
    reader.open(lambda: False)
    found = rest(reader)
    with house.topics.admin() as admin:  # as when their time is over
        admin.delete_consumer_groups([group_of(house.dlq)])[group_of(house.dlq)].result(30)
    reader.remove(found[:1])
    reader.close()
    assert {
        number: at for number, (at, _) in house.topics.committed(group_of(house.dlq), house.dlq).items()
    } == {0: 3, 1: 3, 2: 1}


def test_what_retention_deleted_is_not_waited_for(house: KafkaHouse) -> None:
    house.topics.publish(house.dlq, *map(action, range(20)), partition=0)
    assert house.dlq_command("drop", "--yes", "--no-export", "--match", "id=3,15").code == 0
    house.topics.delete_records(house.dlq, {0: 10})
    assert house.depth(house.dlq) == 9
    assert house.ids(house.dlq) == [10, 11, 12, 13, 14, 16, 17, 18, 19]


def test_the_older_letter_comes_first_whatever_its_partition(house: KafkaHouse, opened: Open) -> None:
    for number in range(90):
        when = 1_772_446_272_000 + number
        house.topics.publish(house.dlq, b"%d" % number, partition=number * 7 % 3, timestamp=when)
    assert [int(letter.body) for letter in rest(opened())] == list(range(90))


def number_of(letter: Delivery) -> int:
    return int(json.loads(letter.body)["actionId"])


def transactional(name: str) -> dict[str, str | int | bool]:
    return {"transactional.id": name, "message.send.max.retries": 5, "enable.idempotence": True}
