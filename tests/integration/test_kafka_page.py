"""The permissions that docs/kafka.md lists are enough (Z14), and the settings that it calls refused are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from chronicle.errors import SettingError
from chronicle.transports.kafka.refused import refuse
from support.cli import Said, run
from support.fixtures import StartKafka
from support.kafka_server import KafkaServer

PAGE: Final = Path(__file__).parents[2] / "docs" / "kafka.md"
PASSWORD: Final = "c4nary-of-the-page"
SYNCERS: Final = "def yes(message):\n    return True\n\n\ndef no(message):\n    return False\n"
BOUNDED: Final = ("--schema", "json", "--until-empty", "--max-time", "30s")


def section(title: str) -> str:
    return PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]


def rights() -> dict[str, list[tuple[str, str, str]]]:
    """By command: the kind of thing, its name, and the operation."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    command = ""
    for row in re.findall(r"^\| (?!for|---)(.*) \|$", section("Permissions"), re.MULTILINE):
        who, on, operations = row.split(" | ") if not row.startswith("|") else ("", *row[2:].split(" | "))
        command = who or command
        kind = "group" if on.startswith("group") else "topic"
        for name in re.findall(r"`([\w.]*orders[\w.]*)`", on):
            found.setdefault(command, []).extend((kind, name, word) for word in operations.split(", "))
    return found


@pytest.fixture(scope="module")
def server(private_kafka: StartKafka) -> KafkaServer:
    """A server with a user for each row of the page."""
    users = {"consume": PASSWORD, "desk": PASSWORD, "publish": PASSWORD, "declare": PASSWORD}
    server = private_kafka(users=users, acls=True)
    for command, rows in rights().items():
        user = command.partition(",")[0].strip("`").replace("dlq", "desk")
        for kind, name, operation in rows:
            server.allow(user, operation.upper(), **{kind: name})
    return server


def test_every_command_works_as_the_page_says(server: KafkaServer, tmp_path: Path) -> None:
    (tmp_path / "sync.py").write_text(SYNCERS)
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps({"id": id_}) + "\n" for id_ in range(3)))

    def as_user(user: str, command: str, *args: str) -> Said:
        env = {"CHRONICLE_URL": server.url_as(user, ""), "CHRONICLE_PASSWORD": PASSWORD}
        said = run(*command.split(), *args, "--queue", "orders", cwd=tmp_path, env=env)
        assert said.code == 0, said.err
        return said

    as_user("declare", "declare")
    as_user("publish", "publish", "orders.jsonl")
    as_user("consume", "consume", "--syncer", "sync.py:no", *BOUNDED)
    assert json.loads(as_user("desk", "dlq list", "--json").out)["depth"] == 3
    as_user("desk", "capture", "--from", "start", "copy.jsonl")
    as_user("desk", "dlq redrive")
    assert json.loads(as_user("desk", "dlq list", "--json").out)["depth"] == 0
    as_user("consume", "consume", "--syncer", "sync.py:yes", *BOUNDED)
    assert server.topics.lag("chronicle.orders", "orders") == 0


def test_the_settings_of_the_page_are_refused() -> None:
    table = PAGE.read_text().partition("These are not taken:")[2].partition("\n## ")[0]
    names = re.findall(
        r"`([a-z]+(?:\.[a-z.]+)+)`", "\n".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
    )
    assert len(names) > 12
    for name in names:
        with pytest.raises(SettingError):
            refuse(name, "false")
