"""`consume` finds out before the first message whether RabbitMQ would keep a dead letter (RB8, F8)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chronicle.topology import QueueOptions, declare
from support.cli import Said, run
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.proxy import Mode, Proxy
from support.rehearsed import __file__ as syncers

PATIENCE = 60.0
SYNCER = ("--syncer", f"{syncers}:yes", "--schema", "raw", "--log-format", "json")


@pytest.fixture
def name(rabbit: Broker) -> str:
    return rabbit.queues.name("preflight")


@pytest.fixture
def env(rabbit: Broker, tmp_path: Path) -> dict[str, str]:
    """The broker and its management API, which borrows the broker's user."""
    management = rabbit.node.management_url.replace("guest:guest@", "")
    return {
        "CHRONICLE_URL": rabbit.url,
        "CHRONICLE_MANAGEMENT_URL": management,
        "REHEARSED": str(tmp_path / "calls"),
    }


def refused(name: str, env: Mapping[str, str], folder: Path) -> Said:
    said = run("consume", "--queue", name, *SYNCER, "--dead-letters", "broker", cwd=folder, env=env)
    assert said.code == 2, said.err
    assert "--allow-drop" in said.err
    return said


def started(chronicle: StartChronicle, name: str, env: Mapping[str, str], *args: str) -> ChronicleProcess:
    process = chronicle("consume", "--queue", name, *SYNCER, *args, env=env)
    process.wait_for_line("consumer.ready", PATIENCE)
    return process


def make(rabbit: Broker, name: str, case: str) -> str:
    """A queue that loses its dead letters in one of the known ways; the words that tell which."""
    dlx = f"{name}.dlx"
    match case:
        case "no exchange":
            rabbit.queues.declare(name)
            return "has no dead-letter exchange"
        case "missing exchange":
            rabbit.queues.declare(name, dlx=dlx)
            return f"the dead-letter exchange '{dlx}' does not exist"
        case "missing queue":
            rabbit.queues.declare(name, {"x-dead-letter-routing-key": f"{name}.dlq"}, dlx="")
            return f"the dead-letter queue '{name}.dlq' does not exist"
    with rabbit.queues.channel() as channel:
        channel.exchange_declare(dlx, "topic", durable=True)
        channel.queue_declare(f"{name}.dlq", durable=True)
        if case == "another key":
            channel.queue_bind(f"{name}.dlq", dlx, "somebody.elses")
    rabbit.queues.declare(name, {"x-dead-letter-routing-key": f"{name}.dlq"}, dlx=dlx)
    return f"no queue is bound to the dead-letter exchange '{dlx}'"


@pytest.mark.parametrize(
    "case", ["no exchange", "missing exchange", "missing queue", "unbound", "another key"]
)
def test_what_would_vanish_is_refused_with_its_cause(
    rabbit: Broker, name: str, env: dict[str, str], tmp_path: Path, case: str
) -> None:
    """F8: exit 2, nothing consumed."""
    words = make(rabbit, name, case)
    rabbit.queues.publish(name, b"{}")
    said = refused(name, env, tmp_path)
    assert words in said.problems[-1]
    assert rabbit.queues.depth(name) == 1


def test_the_operator_may_allow_it(
    rabbit: Broker, name: str, env: dict[str, str], chronicle: StartChronicle
) -> None:
    """RB8: with --allow-drop it starts, and says what it does."""
    make(rabbit, name, "no exchange")
    process = started(chronicle, name, env, "--allow-drop")
    (line,) = process.lines("queue.dead_letters_vanish")
    assert line["level"] == "warning"


@pytest.mark.parametrize("way", ["declared", "policy"])
def test_what_is_kept_is_said_quietly(
    rabbit: Broker, name: str, env: dict[str, str], chronicle: StartChronicle, way: str
) -> None:
    """RB8: arguments or a policy, both count; no warning."""
    policy = f"policy-{name}"
    if way == "declared":
        declare(rabbit.url, name)
    else:
        rabbit.queues.declare_with_dead_letters(f"{name}.other")
        definition = {"dead-letter-exchange": f"{name}.other.dlx"}
        rabbit.node.api.set_policy(policy, f"^{name}$", definition)
        rabbit.queues.declare(name)
    try:
        process = started(chronicle, name, env)
    finally:
        if way == "policy":
            rabbit.node.api.clear_policy(policy)
    (line,) = process.lines("queue.dead_letters_kept")
    assert (line["level"], line["moved_by"]) == ("info", "chronicle" if way == "declared" else "broker")
    assert not process.lines("queue.dead_letters_unknown")


def test_an_argument_wins_over_a_policy(
    rabbit: Broker, name: str, env: dict[str, str], tmp_path: Path
) -> None:
    """RB8: the policy would keep dead letters, the argument does not."""
    rabbit.queues.declare_with_dead_letters(f"{name}.other")
    definition = {"dead-letter-exchange": f"{name}.other.dlx"}
    rabbit.node.api.set_policy(f"policy-{name}", f"^{name}$", definition)
    try:
        rabbit.queues.declare(name, dlx=f"{name}.gone")
        assert f"'{name}.gone' does not exist" in refused(name, env, tmp_path).err
    finally:
        rabbit.node.api.clear_policy(f"policy-{name}")


def test_declared_without_dead_letters_is_known_to_lose_them(
    rabbit: Broker, name: str, env: dict[str, str], tmp_path: Path, chronicle: StartChronicle
) -> None:
    """RB8: what --declare makes is known without asking anybody."""
    shape = ("--declare", "--no-dead-letter")
    said = run("consume", "--queue", name, *SYNCER, *shape, cwd=tmp_path, env=env)
    assert (said.code, rabbit.queues.exists(name)) == (2, False)
    started(chronicle, name, env, *shape, "--allow-drop")


def unknown(process: ChronicleProcess) -> str:
    (line,) = process.lines("queue.dead_letters_unknown")
    assert line["level"] == "warning"
    return str(line["text"])


def test_without_a_management_url_nobody_is_asked_and_the_warning_is_loud(
    rabbit: Broker, name: str, env: dict[str, str], chronicle: StartChronicle
) -> None:
    """RB8: the queue would lose dead letters, and a consumer cannot know."""
    make(rabbit, name, "no exchange")
    del env["CHRONICLE_MANAGEMENT_URL"]
    assert "Check with --management-url" in unknown(started(chronicle, name, env))


@pytest.mark.parametrize("trouble", ["nobody there", "wrong password", "not the API", "silence"])
def test_an_api_that_does_not_tell_is_a_warning_with_the_reason(
    rabbit: Broker, name: str, env: dict[str, Any], chronicle: StartChronicle, trouble: str
) -> None:
    """RB8, Z4: it starts, it says why it does not know, and the password shows nowhere."""
    declare(rabbit.url, name, QueueOptions(retry=None))
    management = rabbit.node.management_url
    wrong = management.replace("guest:guest", "guest:secret-canary")
    as_amqp = wrong.replace("http://", "amqp://")
    with Proxy(as_amqp) as proxy:
        urls = {
            "nobody there": ("http://u:secret-canary@127.0.0.1:1", "connection refused"),
            "wrong password": (wrong, "refused this user"),
            "not the API": (f"{management}/secret-canary", "HTTP status"),
            "silence": (proxy.url_for(as_amqp).replace("amqp://", "http://"), "no answer"),
        }
        proxy.set(Mode.BLACK_HOLE)
        env["CHRONICLE_MANAGEMENT_URL"], words = urls[trouble]
        process = started(chronicle, name, env, "--dead-letters", "broker")
    assert words in unknown(process)
    assert "Check that this is right: --management-url" in unknown(process)
    assert "secret-canary" not in process.stderr + process.stdout


def test_a_password_typed_in_the_management_url_is_warned_about(rabbit: Broker, tmp_path: Path) -> None:
    """Z3."""
    typed = ("--management-url", "http://u:secret-canary@127.0.0.1:1")
    args = ("--queue", rabbit.queues.name("missing"), *SYNCER, *typed)
    said = run("consume", *args, cwd=tmp_path, env={"CHRONICLE_URL": rabbit.url})
    assert said.code == 2
    assert "CHRONICLE_MANAGEMENT_URL" in said.err
    assert "secret-canary" not in said.err
