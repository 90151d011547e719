"""`chronicle capture`: the file has everything, and the queue keeps everything."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.core.record import from_record
from chronicle.transports import holding_reader
from chronicle.transports.catalog import open_publisher
from chronicle.transports.seam import Connector, Outgoing
from support.cli import Said, run
from support.fixtures import Broker, StartChronicle
from support.queues import Queues
from support.waiting import wait_for

KINDS: Final = ("local", "classic", "quorum")
ODD: Final = b"\xff\x00 neither text nor JSON"
SECRET: Final = {"CHRONICLE_PASSPHRASE": "hunter22-canary"}
# No file can grow beyond 8 MB, as on a full disk.
FULL: Final = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000))
from chronicle_cli.main import main; main()
"""
# A consumer's window made small, so that a copy needs more than one.
WINDOW: Final = """
from chronicle.transports import holding_reader
holding_reader.WIDEST = 100
from chronicle_cli.main import main; main()
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A queue to capture, looked at without any code of ours."""

    url: str
    queue: str
    queues: Queues | None  # None: the embedded one

    def publish(self, bodies: Sequence[bytes]) -> None:
        with open_publisher(Connector(self.url, self.queue)) as publisher:
            publisher.publish([Outgoing(body, {"h": b"\0", "n": 5}) for body in bodies])

    def capture(self, folder: Path, *args: str, **more: Any) -> Said:
        # A password on the command line would be warned about.
        env = {"CHRONICLE_URL": self.url, **more.pop("env", {})}
        return run("capture", "--queue", self.queue, *args, cwd=folder, env=env, **more)

    def depth(self) -> int:
        return len(self._rows()) if self.queues is None else self.queues.depth(self.queue)

    def drain(self, number: int) -> list[bytes]:
        """All bodies in the queue's order, once all are free again; for a look, the last one of a test."""
        wait_for(lambda: self.depth() == number, 30, f"{number} messages in {self.queue}")
        if self.queues is None:
            return [body for body, _, _ in self._rows()]
        return [fetched.body for fetched in self.queues.get_all(self.queue)]

    def untouched(self) -> bool:
        """Whether the embedded queue has no trace of anybody."""
        return all((tries, redelivered) == (0, 0) for _, tries, redelivered in self._rows())

    def _rows(self) -> list[tuple[bytes, int, int]]:
        with sqlite3.connect(self.url.partition(":")[2]) as db:
            return db.execute(
                "SELECT body, tries, redelivered FROM messages JOIN contents USING (id)"
                " WHERE owner IS NULL ORDER BY id"
            ).fetchall()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(f"local:{tmp_path}/q.db", "q", None)
    broker: Broker = request.getfixturevalue("rabbit")
    queue = broker.queues.declare(broker.queues.name("capture"), quorum=request.param == "quorum")
    return Place(broker.url, queue, broker.queues)


@pytest.fixture
def local(tmp_path: Path) -> Place:
    return Place(f"local:{tmp_path}/q.db", "q", None)


def bodies(path: Path) -> list[bytes]:
    return [from_record(json.loads(line)).body for line in path.read_bytes().splitlines()]


def test_three_thousand_messages_are_copied_and_stay_in_order(place: Place, tmp_path: Path) -> None:
    """Non-destructive: the same number, the same order; and the bodies byte for byte (D-21, Z6)."""
    sent = [b"%d" % number for number in range(2999)] + [ODD]
    place.publish(sent)
    said = place.capture(tmp_path, "copy.jsonl")
    assert (said.code, said.problems) == (0, [])
    assert said.out == f"3000 messages of {place.queue} copied to copy.jsonl; all are still in the queue\n"
    assert bodies(tmp_path / "copy.jsonl") == sent
    assert place.drain(3000) == sent
    assert (tmp_path / "copy.jsonl").stat().st_mode & 0o777 == 0o600
    if place.queues is None:
        assert said.err == ""
        assert place.untouched()
    else:
        assert said.err.count("marks messages that were looked at as redelivered") == 1


def test_more_than_one_consumer_may_hold(place: Place, tmp_path: Path) -> None:
    """The largest window of AMQP is 65,535: beyond it another consumer helps, and the order stays."""
    assert holding_reader.WIDEST == 65535
    sent = [b"%d" % number for number in range(350)]
    place.publish(sent)
    said = place.capture(tmp_path, "copy.jsonl", program=WINDOW)
    assert said.code == 0, said.err
    assert bodies(tmp_path / "copy.jsonl") == sent
    assert place.drain(350) == sent


def test_a_record_says_all_about_its_delivery(place: Place, tmp_path: Path) -> None:
    place.publish([b'{"a": 1}', ODD])
    assert place.capture(tmp_path, "--limit", "1", "copy.jsonl").code == 0
    (line,) = (tmp_path / "copy.jsonl").read_bytes().splitlines()
    delivery = from_record(json.loads(line))
    assert (delivery.body, delivery.queue, delivery.redelivered) == (b'{"a": 1}', place.queue, False)
    assert dict(delivery.headers) == {"h": b"\0", "n": 5}
    assert place.drain(2) == [b'{"a": 1}', ODD]


def test_an_empty_queue_is_an_empty_file(place: Place, tmp_path: Path) -> None:
    place.publish([b"x"])
    place.drain(1)
    if place.queues is None:
        with sqlite3.connect(tmp_path / "q.db") as db:
            db.execute("DELETE FROM messages")
    said = place.capture(tmp_path, "copy.jsonl")
    assert (said.code, (tmp_path / "copy.jsonl").read_bytes()) == (0, b"")


def test_an_encrypted_copy_is_replayed_and_published(place: Place, tmp_path: Path) -> None:
    sent = [b'{"canary": "ann@example.org"}', ODD]
    place.publish(sent)
    said = place.capture(tmp_path, "--encrypt", "copy.encrypted", env=SECRET)
    assert said.code == 0
    assert b"ann@" not in (tmp_path / "copy.encrypted").read_bytes()
    back = Place(f"local:{tmp_path}/back.db", "back", None)
    args = ("--url", back.url, "--queue", "back", "copy.encrypted")
    assert run("publish", *args, cwd=tmp_path, env=SECRET).code == 0
    assert back.drain(2) == sent
    for env in ({}, {"CHRONICLE_PASSPHRASE": "wrong"}, {"CHRONICLE_PASSPHRASE": ""}):
        refused = run("publish", *args, cwd=tmp_path, env=env)
        assert (refused.code, len(refused.problems)) == (2, 1)
        assert "hunter22" not in refused.err
    assert back.depth() == 2


def test_a_queue_that_is_not_there_leaves_no_file(place: Place, tmp_path: Path) -> None:
    place.publish([b"x"])
    said = run("capture", "--queue", "nope", "x.jsonl", cwd=tmp_path, env={"CHRONICLE_URL": place.url})
    assert said.code == 2
    assert not (tmp_path / "x.jsonl").exists()


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    """X6: exit 3, and no file."""
    env = {"CHRONICLE_URL": "amqp://127.0.0.1:1/", "CHRONICLE_STARTUP_TIMEOUT": "10ms"}
    said = run("capture", "--queue", "q", "x.jsonl", cwd=tmp_path, env=env)
    assert said.code == 3
    assert not (tmp_path / "x.jsonl").exists()


def test_without_a_passphrase_there_is_no_file(local: Place, tmp_path: Path) -> None:
    local.publish([b"x"])
    said = local.capture(tmp_path, "--encrypt", "copy.encrypted")
    consumed = ("consume", "--url", local.url, "--queue", "q", "--syncer", "crm.py:sync", "--until-empty")
    (tmp_path / "crm.py").write_text("def sync(message):\n    return True\n")
    also = run(*consumed, "--capture", "handled.encrypted", "--encrypt", cwd=tmp_path)
    assert (said.code, also.code) == (2, 2)
    assert not list(tmp_path.glob("*.encrypted"))
    assert local.depth() == 1


@pytest.mark.parametrize(
    "args",
    [
        ("capture", "-"),
        ("consume", "--syncer", "crm.py:sync", "--until-empty", "--capture", "-"),
        ("dlq", "drop", "--yes", "--export", "-"),
        ("replay", "--syncer", "crm.py:sync", "m.jsonl", "--dead-letters", "-"),
    ],
)
def test_a_dash_is_no_name_for_a_file_that_is_written(
    local: Place, tmp_path: Path, args: tuple[str, ...]
) -> None:
    """Who writes it means standard output."""
    local.publish([b"x"])
    (tmp_path / "crm.py").write_text("def sync(message):\n    return True\n")
    (tmp_path / "m.jsonl").write_text("{}\n")
    where = () if args[0] == "replay" else ("--url", local.url, "--queue", "q")
    said = run(*args, *where, cwd=tmp_path)
    assert said.code == 2
    assert said.problems == ["chronicle: records cannot be written to standard output here"]
    assert not (tmp_path / "-").exists()
    assert local.depth() == 1


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_full_disk_leaves_no_empty_file(local: Place, tmp_path: Path, encrypted: bool) -> None:
    """The next try would find a file that exists already."""
    local.publish([b'"%s"' % (b"x" * 3_000_000)])
    options = ("--encrypt",) if encrypted else ()
    said = local.capture(tmp_path, *options, "copy.jsonl", env=SECRET if encrypted else {}, program=FULL)
    assert (said.code, said.problems) == (1, ["chronicle: copy.jsonl cannot be written: File too large"])
    assert not (tmp_path / "copy.jsonl").exists()
    assert local.capture(tmp_path, "copy.jsonl").code == 0


def test_an_existing_file_is_not_touched(local: Place, tmp_path: Path) -> None:
    local.publish([b"x"])
    (tmp_path / "mine.jsonl").write_text("mine")
    said = local.capture(tmp_path, "mine.jsonl")
    assert (said.code, len(said.problems)) == (2, 1)
    assert (tmp_path / "mine.jsonl").read_text() == "mine"


def test_what_is_kept_back_is_not_waited_for_for_ever(local: Place, tmp_path: Path) -> None:
    """No command hangs: a message that nobody gets now is counted and told."""
    local.publish([b"1", b"2"])
    with sqlite3.connect(tmp_path / "q.db") as db:
        db.execute("UPDATE messages SET available_at = 99999999999999 WHERE id = 2")
    said = local.capture(tmp_path, "copy.jsonl")
    assert said.code == 0
    assert "1 more was waiting at the start" in said.err
    assert bodies(tmp_path / "copy.jsonl") == [b"1"]


def test_a_full_disk_leaves_the_queue_alone(local: Place, tmp_path: Path) -> None:
    sent = [b"x" * 1_000_000] * 20
    local.publish(sent)
    # Room for what the queue file itself writes to be read, and not for the copy.
    program = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000))\n"
    said = local.capture(tmp_path, "copy.jsonl", program=program + WINDOW)
    assert (said.code, len(said.problems)) == (1, 1)
    assert "cannot be written" in said.err
    assert local.drain(20) == sent


def test_a_worn_message_of_a_quorum_queue_ends_it(rabbit: Broker, tmp_path: Path) -> None:
    """RB10: beyond its delivery limit such a queue dead-letters or drops a message."""
    queue = rabbit.queues.declare(rabbit.queues.name("worn"), quorum=True)
    place = Place(rabbit.url, queue, rabbit.queues)
    place.publish([b"x"])
    codes = []
    for number in range(4):
        said = place.capture(tmp_path, "--max-deliveries", "2", f"{number}.jsonl")
        codes.append(said.code)
        wait_for(lambda: place.depth() == 1, 30, "the message is back")
    assert codes == [0, 0, 0, 2]
    assert "3 times before" in said.err


def test_a_signal_ends_it_and_everything_goes_back(
    local: Place, tmp_path: Path, chronicle: StartChronicle
) -> None:
    local.publish([b"%d" % number for number in range(100)])
    with sqlite3.connect(tmp_path / "q.db") as db:
        db.execute("UPDATE messages SET available_at = 99999999999999 WHERE id = 100")
    process = chronicle("capture", "--url", local.url, "--queue", "q", "copy.jsonl")
    copy = tmp_path / "copy.jsonl"
    wait_for(lambda: copy.exists() and copy.read_bytes().count(b"\n") == 99, 30, "99 lines")
    process.signal(signal.SIGTERM)
    assert process.wait() == 4
    assert local.depth() == 100
    assert local.untouched()


def test_a_capture_without_readable_bodies_is_small_and_complete(tmp_path: Path) -> None:
    """Base64 alone, where a file of JSON messages would be more than three times their size."""
    body = {"text": 'with "quotes" and more', "numbers": list(range(300))}
    (tmp_path / "m.jsonl").write_text(f"{json.dumps(body)}\n" * 20)
    where = ("--url", "local:q.db", "--queue", "q")
    assert run("publish", *where, "m.jsonl", cwd=tmp_path).code == 0
    assert run("capture", *where, "whole.jsonl", cwd=tmp_path).code == 0
    assert run("capture", *where, "--no-bodies-as-json", "small.jsonl", cwd=tmp_path).code == 0
    (tmp_path / "crm.py").write_text("def sync(message):\n    return len(message['numbers']) == 300\n")
    run_it = ("--syncer", "crm.py:sync", "--schema", "json")
    consume = ("consume", *where, *run_it, "--until-empty")
    assert run(*consume, "--no-bodies-as-json", cwd=tmp_path).code == 2  # without --capture
    small = {"CHRONICLE_BODIES_AS_JSON": "false"}
    assert run(*consume, "--capture", "handled.jsonl", cwd=tmp_path, env=small).code == 0

    messages, whole = (tmp_path / "m.jsonl").stat().st_size, (tmp_path / "whole.jsonl").stat().st_size
    assert whole > 3 * messages
    for name in ("small.jsonl", "handled.jsonl"):
        assert (tmp_path / name).stat().st_size < 1.7 * messages
        record = json.loads((tmp_path / name).read_text().splitlines()[0])
        assert list(record["body"]) == ["base64"]
        assert run("replay", *run_it, name, cwd=tmp_path).out.split()[0] == "20"


def test_an_export_without_readable_bodies(tmp_path: Path) -> None:
    where = ("--url", "local:q.db", "--queue", "q")
    (tmp_path / "m.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    assert run("publish", "--url", "local:q.db", "--queue", "q.dlq", "m.jsonl", cwd=tmp_path).code == 0
    assert run("dlq", "export", *where, "--no-bodies-as-json", "dead.jsonl", cwd=tmp_path).code == 0
    assert (
        run(
            "dlq", "drop", *where, "--no-bodies-as-json", "--yes", "--export", "gone.jsonl", cwd=tmp_path
        ).code
        == 0
    )
    for name in ("dead.jsonl", "gone.jsonl"):
        records = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert [list(record["body"]) for record in records] == [["base64"]] * 2
