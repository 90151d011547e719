"""Names of queues that leave no room for the names made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import chronicle
from chronicle import topology
from chronicle.errors import SettingError
from chronicle.transports.catalog import broker_of, check_letters, open_transport, planned_topology
from chronicle.transports.seam import Connector
from support.cli import Said, run
from support.crm import write_syncer

LONGEST: Final = "q" * 251  # with its dead letters beside it
LONG: Final = "q" * 252
LOCAL: Final = "local:q.db"
NOBODY: Final = "redis://127.0.0.1:1"  # whoever asks there before looking at the name ends with 3


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    write_syncer(tmp_path)
    (tmp_path / "m.json").write_text("{}")
    return tmp_path


def command(folder: Path, url: str, queue: str, *arguments: str) -> Said:
    return run(*arguments, "--url", url, "--queue", queue, cwd=folder)


@pytest.mark.parametrize("url", [LOCAL, NOBODY])
@pytest.mark.parametrize(
    "arguments",
    [
        ("declare",),
        ("declare", "--dry-run"),
        ("publish", "m.json"),
        ("publish", "m.json", "--dry-run"),
        ("consume", "--syncer", "crm:sync", "--schema", "json", "--until-empty"),
        ("consume", "--syncer", "crm:sync", "--schema", "json", "--until-empty", "--declare"),
    ],
    ids=" ".join,
)
def test_a_queue_whose_dead_letters_nobody_could_ask_for_is_refused(
    folder: Path, url: str, arguments: tuple[str, ...]
) -> None:
    """They would be kept, under a name that `dlq` and every other command refuse."""
    said = command(folder, url, LONG, *arguments)
    assert said.code == 2, said.err
    assert "too long for a dead-letter queue beside it" in said.err
    assert "its name has room for 251 bytes" in said.err
    assert not (folder / "q.db").exists()


@pytest.mark.parametrize("queue", ["ż" * 126, "q" * 255])
def test_bytes_are_counted_not_letters(queue: str) -> None:
    with pytest.raises(SettingError, match="too long"):
        open_transport(Connector(LOCAL, queue))
    with pytest.raises(SettingError, match="too long"):
        planned_topology(Connector(LOCAL, queue))


def test_a_name_with_room_for_dead_letters_is_taken(folder: Path) -> None:
    assert command(folder, LOCAL, LONGEST, "declare").code == 0
    assert command(folder, LOCAL, LONGEST, "publish", "m.json").code == 0
    consuming = ("consume", "--syncer", "crm:sync", "--until-empty", "--on-invalid", "dead-letter")
    assert command(folder, LOCAL, LONGEST, *consuming).code == 0
    said = command(folder, LOCAL, LONGEST, "dlq", "export", "letters.jsonl")
    assert (said.code, len((folder / "letters.jsonl").read_text().splitlines())) == (0, 1)


def test_dead_letters_may_be_put_back_where_they_were_and_looked_at(folder: Path) -> None:
    """Nothing is kept beside what publish and dlq reach: these have died already."""
    dead = f"{LONGEST}.dlq"
    assert command(folder, LOCAL, dead, "publish", "m.json").code == 0
    for looking in (("dlq", "list"), ("dlq", "export", "out.jsonl")):
        said = command(folder, LOCAL, LONGEST, *looking)
        assert (said.code, "1 " in said.out + said.err) == (0, True), said.err
    assert command(folder, LOCAL, "short", "declare").code == 0
    assert command(folder, LOCAL, LONG, "dlq", "redrive", "--dlq", dead, "--to", "short").code == 0
    assert command(folder, LOCAL, "short", "capture", "copy.jsonl").code == 0


def test_who_keeps_no_dead_letters_beside_the_queue_has_room_for_none() -> None:
    """Channels keep none, and RabbitMQ may keep them anywhere; Kafka has a limit of its own."""
    open_transport(Connector("redis://h", LONG, choices={"mode": "pubsub"}))
    check_letters(Connector("amqp://h", LONG), broker_of("amqp://h"))
    check_letters(Connector("kafka://h", LONG), broker_of("kafka://h"))
    for group in ({"group": "g"}, {"no_group": True}):
        with pytest.raises(SettingError, match="too long"):
            open_transport(Connector("redis://h", LONG, choices=group))


def test_programs_are_told_the_same(folder: Path) -> None:
    with pytest.raises(SettingError, match="too long for a dead-letter queue"):
        topology.declare(f"local:{folder}/q.db", LONG)
    with pytest.raises(SettingError, match=r"^queue is too long for a dead-letter queue"):
        chronicle.run(f"local:{folder}/q.db", LONG, lambda _message: True)
    assert not (folder / "q.db").exists()


@pytest.mark.parametrize(
    ("command_line", "queue"),
    [
        (("declare", "--retry-delay", "1s"), "q" * 250),
        (("declare", "--retry-delay", "1s", "--only-retry"), "q" * 250),
        (("consume", "--on-failure", "retry:2", "--retry-delay", "1s"), "q" * 250),
        (("consume", "--on-failure", "retry:2", "--retry-delay", "1ms,1s,10m"), "q" * 246),
        (("consume", "--on-failure", "retry:2"), "q" * 250),
        (("consume", "--on-failure", "retry:2", "--retry-delay", "1s", "--declare"), "q" * 250),
    ],
    ids=str,
)
def test_a_queue_without_room_for_its_retry_queues_is_refused_before_anybody_connects(
    folder: Path, command_line: tuple[str, ...], queue: str
) -> None:
    """The client cannot write such a name; that was taken for a broken connection."""
    syncer = ("--syncer", "crm:sync", "--schema", "json") if command_line[0] == "consume" else ()
    said = command(folder, "amqp://127.0.0.1:1", queue, *command_line, *syncer)
    assert said.code == 2, said.err
    assert "the queue needs a name of more than 255 bytes" in said.err
    assert "choose a shorter name" in said.err


def test_a_queue_with_room_for_its_retry_queues_is_taken() -> None:
    longest = "q" * (255 - len(".retry.1s"))
    open_transport(Connector("amqp://h", longest, retry_delays=(1.0,)))
    with pytest.raises(SettingError, match="more than 255 bytes"):
        open_transport(Connector("amqp://h", f"{longest}q", retry_delays=(1.0,)))
