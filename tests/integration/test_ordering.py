"""`--order field:PATH` at real brokers: one contact's messages one after the other (D-23)."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.transports.catalog import open_publisher
from chronicle.transports.seam import Connector, Outgoing
from support import rehearsed
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.retrying import prepare
from support.stage import PATIENCE, counted
from support.waiting import wait_for

CONTACTS: Final = ("ada", "bob", "cyd", "dan", "eve")
EACH: Final = 8  # messages of a contact
ORDER: Final = ("--order", "field:contact.contactRef", "--concurrency", "10")
DELAYS: Final = (0.05, 0.1)
RETRY: Final = ("--on-failure", "retry:3", "--retry-delay", "50ms,100ms")


@dataclass(frozen=True, slots=True)
class Place:
    """One queue of one broker, and `chronicle consume` over it."""

    url: str
    queue: str
    chronicle: StartChronicle
    folder: Path
    own: tuple[str, ...] = ()  # options of this broker
    retries: bool = True  # takes retry:N
    in_place: bool = True  # what goes back comes again before what is newer

    def publish(self, *messages: dict[str, Any]) -> None:
        with open_publisher(Connector(self.url, self.queue)) as publisher:
            publisher.publish([Outgoing(json.dumps(message).encode()) for message in messages])

    def start(self, *options: str) -> ChronicleProcess:
        syncer = f"{Path(rehearsed.__file__)}:in_order"
        always = ("consume", "--queue", self.queue, "--schema", "json", "--syncer", syncer, *self.own)
        env = {"CHRONICLE_URL": self.url, "REHEARSED": str(self.folder / "calls.jsonl")}
        return self.chronicle(*always, *options, env=env)

    def consume(self, *options: str) -> ChronicleProcess:
        process = self.start("--until-empty", *options)
        assert process.wait(PATIENCE) == 0, process.stderr
        return process

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.fixture(params=["local", "rabbitmq-classic", "rabbitmq-quorum", "redis", "redis-cursor"])
def place(request: pytest.FixtureRequest, chronicle: StartChronicle, tmp_path: Path) -> Place:
    kind: str = request.param
    if kind == "local":
        return Place(f"local:{tmp_path / 'queue.db'}", "orders", chronicle, tmp_path)
    if kind.startswith("rabbitmq"):
        broker: Broker = request.getfixturevalue("rabbit")
        queue, quorum = broker.queues.name(kind), kind == "rabbitmq-quorum"
        broker.queues.declare_with_dead_letters(queue, quorum=quorum)
        prepare(broker.queues, queue, DELAYS, quorum=quorum)
        return Place(broker.url, queue, chronicle, tmp_path, in_place=not quorum)
    server: RedisServer = request.getfixturevalue("redis_server")
    stream = server.streams.make(server.streams.name("orders"))
    if kind == "redis":
        return Place(server.url, stream, chronicle, tmp_path)
    own = ("--no-group", "--cursor", f"{stream}.cursor")
    return Place(server.url, stream, chronicle, tmp_path, own, retries=False, in_place=False)


def messages(tries: int) -> list[dict[str, Any]]:
    """The contacts take turns; how many tries a message needs differs, up to so many."""
    numbers = range(EACH * len(CONTACTS))
    return [
        {"n": n, "contact": {"contactRef": CONTACTS[n % len(CONTACTS)]}, "tries": 1 + n // 2 % tries}
        for n in numbers
    ]


def steps(calls: list[dict[str, Any]], contact: str) -> list[tuple[int, int, str]]:
    """What happened to this contact's messages: which, at which try, and whether it began or was over."""
    own = [call for call in calls if (call["message"].get("contact") or {}).get("contactRef") == contact]
    return [(call["message"]["n"], call["attempts"], call["message"]["is"]) for call in own]


def expected(sent: list[dict[str, Any]], contact: str, most: int) -> list[tuple[int, int, str]]:
    return [
        (message["n"], number, when)
        for message in sent
        if message["contact"]["contactRef"] == contact
        for number in range(1, min(message["tries"], most) + 1)
        for when in ("begun", "over")
    ]


@pytest.mark.parametrize(
    ("options", "most"), [((), 2), (RETRY, 3)], ids=["requeue-once", "retry with a delay"]
)
def test_a_contact_is_handled_in_order(place: Place, options: tuple[str, ...], most: int) -> None:
    """Ten at once, and no message overtakes an earlier one of its contact, however often that fails."""
    if options and not place.retries:
        pytest.skip("no retry:N here")
    sent = messages(most + 1)
    place.publish(*sent)
    process = place.consume(*ORDER, *options)
    calls = place.calls()
    for contact in CONTACTS:
        assert steps(calls, contact) == expected(sent, contact, most), contact
    pairs = list(zip(calls[::2], calls[1::2], strict=True))
    assert any(one["message"]["n"] != other["message"]["n"] for one, other in pairs), "others did not go on"
    dead = sum(message["tries"] > most for message in sent)
    assert counted(process)["dead_lettered"] == dead
    assert counted(process)["ack"] == len(sent) - dead


def test_without_it_they_overtake_one_another(place: Place) -> None:
    """Negative control: the same run without an order."""
    sent = messages(3)
    place.publish(*sent)
    place.consume("--concurrency", "10")
    calls = place.calls()
    assert any(steps(calls, contact) != expected(sent, contact, 2) for contact in CONTACTS)


def test_a_message_without_the_field_waits_for_nobody(place: Place) -> None:
    slow = {"n": 0, "contact": {"contactRef": "ada"}, "tries": 2}
    place.publish(slow, slow | {"n": 1}, *({"n": n, "tries": 1} for n in range(2, 8)))
    place.consume(*ORDER)
    begun = [call["message"]["n"] for call in place.calls() if call["message"]["is"] == "begun"]
    assert sorted(begun) == [0, 0, 1, 1, 2, 3, 4, 5, 6, 7]
    assert begun.index(2) < begun.index(1)


def test_a_restart_keeps_the_order(place: Place) -> None:
    """D-11: what waited for its lane, or for its next try, goes back; where a broker can, to its place."""
    options = (*ORDER, *RETRY) if place.retries else ORDER
    sent = messages(2)
    place.publish(*sent)
    first = place.start(*options)
    wait_for(lambda: len(place.calls()) > 20, PATIENCE, "some of them", every=0.005)
    first.signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0, first.stderr
    place.consume(*options)
    calls = place.calls()
    for contact in CONTACTS:
        order = [number for number, _ in groupby(number for number, _, _ in steps(calls, contact))]
        own = [message["n"] for message in sent if message["contact"]["contactRef"] == contact]
        assert sorted(set(order)) == own, contact
        assert order == own or not place.in_place, contact
