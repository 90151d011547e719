"""`chronicle publish`: what is confirmed is counted, and nothing else."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.record import dump, to_record
from chronicle.engine.publication import in_batches
from chronicle.transports.batches import BATCH, BATCH_BYTES
from support.cli import PROGRAM, Said, run
from support.fixtures import Broker
from support.waiting import wait_for


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """250 messages, more than two batches."""
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(250)))
    return path


def queued(file: Path) -> int:
    with sqlite3.connect(file) as db:
        (count,) = db.execute("SELECT count(*) FROM messages").fetchone()
    return int(count)


def test_batches_are_bounded_by_number_and_size() -> None:
    """X7: what is held is bounded."""
    small = [Delivery(b"x", queue="q", transport="file")] * 250
    assert [len(batch) for batch in in_batches(small)] == [BATCH, BATCH, 50]
    sizeable = [Delivery(b"x" * (BATCH_BYTES // 16), queue="q", transport="file")] * 20
    assert [len(batch) for batch in in_batches(sizeable)] == [16, 4]
    assert list(in_batches([])) == []


def test_publish_to_the_embedded_queue(tmp_path: Path, lines: Path) -> None:
    said = run("publish", "--url", "local:q.db", "--queue", "q", str(lines), cwd=tmp_path)
    assert (said.code, said.out, said.err) == (0, "250 messages on q, confirmed\n", "")
    assert queued(tmp_path / "q.db") == 250


def test_repeat_and_standard_input(tmp_path: Path, lines: Path) -> None:
    args = ("publish", "--url", "local:q.db", "--queue", "q")
    assert run(*args, "--repeat", "3", str(lines), cwd=tmp_path).out == "750 messages on q, confirmed\n"
    assert run(*args, "-", cwd=tmp_path, stdin="{}\n{}\n").out == "2 messages on q, confirmed\n"
    for stdin in ("-", "/dev/stdin"):
        said = run(*args, "--repeat", "2", stdin, cwd=tmp_path, stdin="{}\n")
        assert said.code == 2
        assert "cannot be read twice" in said.problems[0]


def test_dry_run_connects_to_nothing(tmp_path: Path, lines: Path) -> None:
    said = run(
        "publish", "--dry-run", "--url", "amqp://127.0.0.1:1/", "--queue", "q", str(lines), cwd=tmp_path
    )
    assert (said.code, said.out) == (0, "250 messages for q; nothing was sent\n")


def test_a_missing_file_is_found_before_the_broker_is_looked_for(tmp_path: Path) -> None:
    said = run("publish", "--url", "amqp://127.0.0.1:1/", "--queue", "q", "none.json", cwd=tmp_path)
    assert said.code == 2
    assert "none.json" in said.problems[0]


def test_an_absent_broker_ends_with_three(tmp_path: Path, lines: Path) -> None:
    """X6, D-9: tried again within the time, then exit 3; how often is told."""
    args = ("publish", "--url", "amqp://127.0.0.1:1/", "--queue", "q", "--startup-timeout", "600ms")
    said = run(*args, str(lines), cwd=tmp_path)
    assert said.code == 3
    assert "trying again" in said.err
    assert said.problems == ["chronicle: 127.0.0.1:1/: connection refused"]


def test_a_damaged_record_in_the_middle_says_how_many_are_confirmed(tmp_path: Path, lines: Path) -> None:
    record = to_record(Delivery(b"{}", queue="q", transport="file"))
    record["body"]["base64"] = "!"
    lines.write_text(lines.read_text() + dump(record).decode() + "\n")
    args = ("publish", "--url", "local:q.db", "--queue", "q")
    before = run(*args, str(lines), cwd=tmp_path)
    assert (before.code, (tmp_path / "q.db").exists()) == (2, False)
    said = run(*args, "-", cwd=tmp_path, stdin=lines.read_text())
    assert said.code == 2
    assert "200 messages on q, confirmed; the rest was not sent" in said.err
    assert queued(tmp_path / "q.db") == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_says_exactly_how_many(tmp_path: Path, number: signal.Signals) -> None:
    """Stopped while it waits for input: 4, and the count is what is on the queue."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "publish", "--url", "local:q.db", "--queue", "q", "-"],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        process.stdin.write(b'{"a": 1}\n' * 150)
        process.stdin.flush()
        wait_for(lambda: (tmp_path / "q.db").exists() and settled(tmp_path / "q.db"), 30, "the first batch")
        process.send_signal(number)
        process.stdin.close()
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait(30) == 4
    finally:
        process.kill()
        process.wait()
    assert f"interrupted: {queued(tmp_path / 'q.db')} messages on q, confirmed" in said


def settled(file: Path) -> bool:
    try:
        return queued(file) >= BATCH
    except sqlite3.OperationalError:
        return False


def test_records_keep_body_headers_and_properties(tmp_path: Path, rabbit: Broker) -> None:
    """D-21, Z6: what is published again is what was captured, byte for byte; persistent always (RB7)."""
    queue = rabbit.queues.declare(rabbit.queues.name())
    body = b'{"a":1,  "a":2}\xff'
    envelope = Envelope(
        {"x-chronicle-attempts": 3, "text": "é"},
        {"content_type": "text/x", "delivery_mode": 1, "user_id": "bob"},
    )
    record = to_record(Delivery(body, queue="elsewhere", transport="rabbitmq", envelope=envelope))
    (tmp_path / "r.jsonl").write_bytes(dump(record) + b"\n" + b'{"plain": true}\n')
    said = run("publish", "--queue", queue, "r.jsonl", cwd=tmp_path, env={"CHRONICLE_URL": rabbit.url})
    assert (said.code, said.out) == (0, f"2 messages on {queue}, confirmed\n")
    with rabbit.queues.channel() as channel:
        _, properties, got = channel.basic_get(queue, auto_ack=True)
        assert properties is not None
        assert (got, properties.headers) == (body, {"text": "é"})  # without the tries it had
        assert (properties.content_type, properties.delivery_mode, properties.user_id) == ("text/x", 2, None)
        assert channel.basic_get(queue, auto_ack=True)[2] == b'{"plain": true}'


def test_refusals_at_the_start_end_with_two(tmp_path: Path, lines: Path, rabbit: Broker) -> None:
    """D-9, X6: no such queue, wrong password, no such virtual host: at once, with a remedy."""
    queue = rabbit.queues.declare(rabbit.queues.name())
    for name, url in (
        ("no-such-queue", rabbit.url),
        (queue, rabbit.url.replace("guest:guest@", "guest:wrong-canary@")),
        (queue, rabbit.url.replace("%2F", "nowhere")),
    ):
        said = run("publish", "--queue", name, str(lines), cwd=tmp_path, env={"CHRONICLE_URL": url})
        assert (said.code, len(said.problems)) == (2, 1), said.err
        assert "remedy: " in said.err
        assert "canary" not in said.err
    assert rabbit.queues.depth(queue) == 0


def test_refused_in_the_middle_ends_with_one_and_the_exact_count(
    tmp_path: Path, lines: Path, rabbit: Broker
) -> None:
    """RB7: a full queue nacks; only what was confirmed counts, and it is what is on the queue."""
    queue = rabbit.queues.name()
    with rabbit.queues.channel() as channel:
        limits = {"x-max-length": 120, "x-overflow": "reject-publish"}
        channel.queue_declare(queue, durable=True, arguments=limits)
    said = run("publish", "--queue", queue, str(lines), cwd=tmp_path, env={"CHRONICLE_URL": rabbit.url})
    assert said.code == 1
    assert f"{rabbit.queues.depth(queue)} messages on {queue}, confirmed" in said.err
    rabbit.queues.delete(queue)


def test_a_user_who_may_not_write_ends_with_two(tmp_path: Path, lines: Path, rabbit: Broker) -> None:
    """X6: the operator must change something, and nothing is left in doubt."""
    queue, user = rabbit.queues.declare(rabbit.queues.name()), "may-not-write"
    rabbit.node.api.add_user(user, "secret")
    try:
        rabbit.node.api.set_permissions(user, "^$", "^$", ".*")
        url = rabbit.url.replace("guest:guest", f"{user}:secret")
        said = run("publish", "--queue", queue, str(lines), cwd=tmp_path, env={"CHRONICLE_URL": url})
    finally:
        rabbit.node.api.delete_user(user)
    assert said.code == 2, said.err
    assert f"this user may not write to the queue {queue!r}" in said.problems[0]
    assert "remedy: it needs permission to write to the default exchange, amq.default" in said.err
    assert f"0 messages on {queue}, confirmed; the rest was refused" in said.err
    assert rabbit.queues.depth(queue) == 0


def test_tls_is_always_verified(tmp_path: Path, lines: Path, rabbit: Broker) -> None:
    """Z9: an unknown authority, a missing client certificate and a wrong port are refused."""
    node = rabbit.node
    assert node.certs is not None
    queue = node.queues.declare(node.queues.name())
    client = ("--tls-cert", str(node.certs.client.cert), "--tls-key", str(node.certs.client.key))
    ca = ("--tls-ca", str(node.certs.ca))
    for files, url, code, says in (
        (client, node.tls_url, 2, "not trusted"),
        (ca, node.tls_url, 2, "wants a client certificate"),
        ((*ca, *client), node.url.replace("amqp:", "amqps:"), 2, "there is no TLS on that port"),
        (("--tls-ca", str(lines)), node.tls_url, 2, "--tls-ca"),
        ((*ca, *client), node.tls_url, 0, ""),
    ):
        said = run("publish", "--queue", queue, *files, str(lines), cwd=tmp_path, env={"CHRONICLE_URL": url})
        assert says in said.err
        assert said.code == code, said.err
    assert node.queues.depth(queue) == 250


def test_json_is_what_arrives(tmp_path: Path, rabbit: Broker) -> None:
    """A document printed over many lines is one message, with its exact bytes."""
    queue = rabbit.queues.declare(rabbit.queues.name())
    text = json.dumps({"a": [1, 2]}, indent=2)
    (tmp_path / "m.json").write_text(text)
    assert (
        run("publish", "--queue", queue, "m.json", cwd=tmp_path, env={"CHRONICLE_URL": rabbit.url}).code == 0
    )
    with rabbit.queues.channel() as channel:
        assert channel.basic_get(queue, auto_ack=True)[2] == text.encode()


class TestNotJson:
    """A file that is not JSON is named, with the line, before anything is sent."""

    REMEDY = "  remedy: correct it; to send it as it stands, add --schema raw"

    def publish(self, folder: Path, *args: str, stdin: str = "") -> Said:
        return run("publish", "--url", "local:q.db", "--queue", "q", *args, cwd=folder, stdin=stdin)

    @pytest.mark.parametrize(
        ("content", "line"),
        [
            (b"dear all\nsee you\n", 1),
            (b'{\n  "a": 1,\n  "b":\n}\n', 4),
            (b"{}\n" * 250 + b'{"a"\n{}\n', 251),
            (b"\n\nNaN\n{}\n", 3),
        ],
    )
    def test_nothing_is_sent(self, tmp_path: Path, content: bytes, line: int) -> None:
        (tmp_path / "good.json").write_bytes(b"{}")
        (tmp_path / "m.txt").write_bytes(content)
        said = self.publish(tmp_path, "good.json", "m.txt")
        assert (said.code, len(said.problems)) == (2, 1)
        assert said.problems[0].startswith(f"chronicle: m.txt, line {line}: the body is not JSON")
        assert self.REMEDY in said.err.splitlines()
        assert not (tmp_path / "q.db").exists()

    def test_raw_sends_anything(self, tmp_path: Path) -> None:
        (tmp_path / "m.txt").write_bytes(b"dear all\nsee you\n")
        assert self.publish(tmp_path, "--schema", "raw", "m.txt").out == "2 messages on q, confirmed\n"

    def test_standard_input_is_checked_as_it_is_read(self, tmp_path: Path) -> None:
        said = self.publish(tmp_path, "-", stdin="{}\n" * 150 + "no\n")
        assert said.code == 2
        assert "standard input, line 151: the body is not JSON" in said.err
        assert "100 messages on q, confirmed; the rest was not sent" in said.err
        assert queued(tmp_path / "q.db") == 100

    def test_a_schema_asks_what_consume_would_ask(self, tmp_path: Path) -> None:
        (tmp_path / "m.json").write_text("{}")
        assert self.publish(tmp_path, "--schema", "json", "m.json").code == 0
        said = self.publish(tmp_path, "--schema", "proca", "m.json")
        assert said.code == 2
        assert "m.json, line 1: the message names no schema" in said.err

    def test_what_was_captured_may_be_anything(self, tmp_path: Path) -> None:
        """Bad input of a queue can be brought back to it."""
        record = to_record(Delivery(b"not JSON", queue="q", transport="local"))
        (tmp_path / "r.jsonl").write_bytes(dump(record) + b"\n")
        assert self.publish(tmp_path, "r.jsonl").code == 0

    def test_a_dry_run_counts_them(self, tmp_path: Path) -> None:
        (tmp_path / "m.jsonl").write_bytes(b'{"a": 1}\n{"a": \n[]\nNaN\n')
        said = self.publish(tmp_path, "--dry-run", "m.jsonl")
        assert (said.code, said.out) == (2, "4 messages, 2 of them bad, for q; nothing was sent\n")
        assert "m.jsonl, line 2: the body is not JSON" in said.problems[0]
        raw = self.publish(tmp_path, "--dry-run", "--schema", "raw", "m.jsonl")
        assert (raw.code, raw.out) == (0, "4 messages for q; nothing was sent\n")
