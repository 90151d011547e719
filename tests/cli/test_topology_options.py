"""The rules between the options about topology, and `chronicle declare` on the embedded queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import SettingError
from chronicle.settings.shape import check_shape
from chronicle.topology import Disabled, Enabled, QueueOptions, QueueType, plan
from chronicle.transports.catalog import broker_of
from support.cli import run

LOCAL = broker_of("local:x.db")
RABBIT = {"CHRONICLE_URL": "amqp://localhost:1/"}
PLAIN = ("--queue", "q", "--syncer", "my:sync")


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"routing_key": "order.*"}, "--routing-key without --exchange"),
        ({"dead_letter": False, "dead_letter_exchange": "x"}, "--no-dead-letter"),
        ({"dead_letter": False, "dead_letter_routing_key": "x"}, "--no-dead-letter"),
        ({"exchange": ""}, "--exchange"),
        ({"exchange": "a\nb"}, "--exchange"),
        ({"dead_letter_exchange": "\x1b"}, "--dead-letter-exchange"),
        ({"ttl": 0.0001}, "--ttl"),
        ({"retry_delays": (5.0, 0.0001)}, "--retry-delay"),
        ({"durable": False, "queue_type": QueueType.QUORUM}, "--no-durable"),
    ],
)
def test_wishes_that_contradict_themselves(wishes: dict[str, Any], said: str) -> None:
    """D-9: one sentence and a remedy."""
    with pytest.raises(SettingError, match=said) as caught:
        check_shape(**wishes)
    assert caught.value.remedy


def test_without_options_it_is_the_default_of_the_design() -> None:
    """R-003-1, 2, D-1: as from code, but for the retries, which need --on-failure retry:N here."""
    assert plan("q", check_shape()) == plan("q", QueueOptions(retry=None))
    bare = QueueOptions(dead_letter=Disabled(), retry=None)
    assert plan("q", check_shape(dead_letter=False)) == plan("q", bare)


def test_a_dead_letter_exchange_that_was_named_is_somebody_elses() -> None:
    """R-003-3."""
    own = check_shape(dead_letter_exchange="x").dead_letter
    assert isinstance(own, Enabled)
    assert (own.exchange("q"), own.routing_key("q"), own.foreign) == ("x", "q.dlq", True)


@pytest.mark.parametrize(
    "option",
    [
        ("--exchange", "e"),
        ("--ttl", "1h"),
        ("--no-dead-letter",),
        ("--dead-letter-routing-key", "k"),
        ("--queue-type", "quorum"),
        ("--no-durable",),
    ],
)
def test_what_a_broker_has_no_use_for_is_refused(tmp_path: Path, option: tuple[str, ...]) -> None:
    """One policy for the options of another broker, whether the queue is declared or not."""
    (tmp_path / "crm.py").write_text("def sync(message):\n    return True\n")
    consume = ("consume", "--syncer", "crm.py:sync")
    for url in ("local:q.db", "redis://127.0.0.1:1/0", "kafka://127.0.0.1:1"):
        for command in (("declare",), consume, (*consume, "--declare")):
            said = run(*command, "--url", url, "--queue", "q", *option, cwd=tmp_path)
            assert said.code == 2, command
            assert "has no effect: " in said.err or "have no effect: " in said.err


def test_as_a_variable_it_is_for_another_broker(tmp_path: Path) -> None:
    env = {"CHRONICLE_TTL": "1h", "CHRONICLE_QUEUE_TYPE": "quorum"}
    said = run("declare", "--queue", "q", cwd=tmp_path, env=env)
    assert (said.code, "has no effect" in said.err) == (0, False)


def test_declare_makes_a_queue_in_a_file(tmp_path: Path) -> None:
    """Once it is made, and the second time it was there; a dry run makes no file."""
    dry = run("declare", "--queue", "q", "--dry-run", cwd=tmp_path)
    assert (dry.code, list(tmp_path.iterdir())) == (0, [])
    first, again = (run("declare", "--queue", "q", cwd=tmp_path) for _ in range(2))
    assert (first.out, again.out) == tuple(
        f"the plan for q:\n  queue q, durable\n{done}: queue q\n" for done in ("created", "exists")
    )


def test_consume_makes_a_queue_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def sync(message):\n    return True\n")
    bare = run("consume", *PLAIN, "--until-empty", cwd=tmp_path)
    made = run("consume", *PLAIN, "--until-empty", "--declare", cwd=tmp_path)
    assert (bare.code, made.code) == (2, 0), made.err


@pytest.mark.parametrize(
    "typed",
    [
        ["--exchange", "e"],
        ["--ttl", "5s"],
        ["--no-dead-letter"],
        ["--dead-letter"],
        ["--dead-letter-exchange", "e"],
        ["--queue-type", "quorum"],
        ["--no-durable"],
        ["--declare", "--management-url", "http://localhost"],
    ],
)
def test_consume_refuses_what_would_do_nothing(tmp_path: Path, typed: list[str]) -> None:
    """Typed without --declare it would silently do nothing; so would a needless question."""
    said = run("consume", *PLAIN, *typed, cwd=tmp_path, env=RABBIT)
    assert said.code == 2
    assert f"{typed[-1] if len(typed) == 1 else typed[-2]} has no effect" in said.problems[0]


@pytest.mark.parametrize("typed", [["--allow-drop"], ["--management-url", "http://localhost"]])
def test_the_embedded_queue_needs_no_look_at_dead_letters(tmp_path: Path, typed: list[str]) -> None:
    said = run("consume", *PLAIN, *typed, cwd=tmp_path)
    assert said.code == 2
    assert "has no effect on the embedded queue" in said.problems[-1]


def test_variables_may_stand_in_a_projects_env(tmp_path: Path) -> None:
    """R-003-32: a TTL for the whole project disturbs nobody who declares nothing."""
    env = {
        "CHRONICLE_TTL": "1h",
        "CHRONICLE_EXCHANGE": "shop",
        "CHRONICLE_MANAGEMENT_URL": "http://localhost",
    }
    (tmp_path / "my.py").write_text("def sync(message):\n    return True\n")
    run("declare", "--queue", "q", cwd=tmp_path)
    assert run("consume", *PLAIN, "--until-empty", cwd=tmp_path, env=env).code == 0
    dry = run("declare", "--queue", "q", "--dry-run", cwd=tmp_path, env=env | RABBIT)
    assert "x-message-ttl=3600000" in dry.out


@pytest.mark.parametrize("given", ["", "5", "5s,", "5s;30s", "0s", "5s,0s", "-1s"])
def test_delays_are_durations_with_commas(tmp_path: Path, given: str) -> None:
    said = run("declare", "--queue", "q", "--retry-delay", given, cwd=tmp_path)
    assert said.code == 2
    assert "--retry-delay takes durations above zero" in said.problems[-1]


def test_only_the_retry_queues(tmp_path: Path) -> None:
    """D-2, D-9: for a queue that somebody else has declared, with arguments of their own."""
    args = ("declare", "--queue", "q", "--only-retry", "--queue-type", "quorum")
    said = run(*args, "--retry-delay", "5s,5s,1m", "--dry-run", cwd=tmp_path, env=RABBIT)
    first, queue, *retries, last = said.out.splitlines()
    assert (said.code, first, queue, last) == (
        0,
        "the plan for q:",
        "  queue q, as it is",
        "nothing was created",
    )
    assert [line.split(",")[0] for line in retries] == ["  queue q.retry.5s", "  queue q.retry.1m"]
    assert all("x-queue-type=quorum" in line for line in retries)
    for more in ((), ("--retry-delay", "5s", "--ttl", "5s"), ("--retry-delay", "5s", "--no-dead-letter")):
        refused = run(*args, *more, cwd=tmp_path, env=RABBIT)
        assert (refused.code, "--only-retry" in refused.problems[0]) == (2, True)
    embedded = run(*args, "--retry-delay", "5s", "--url", "local:x.db", cwd=tmp_path)
    assert (embedded.code, list(tmp_path.iterdir())) == (2, [])
