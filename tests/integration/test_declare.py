"""`chronicle declare` and `consume --declare` on a real RabbitMQ, looked at through its management API."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pytest

from chronicle.errors import BrokerRefused, BrokerUnreachable
from chronicle.topology import Disabled, Done, MaxAttempts, QueueOptions, QueueType, declare
from support.cli import Said, run
from support.fixtures import Broker, StartChronicle
from support.management import ManagementApi
from support.proxy import Mode, Proxy
from support.rehearsed import __file__ as syncers
from support.waiting import wait_for

PATIENCE = 60.0
DEAD = ("x-dead-letter-exchange", "x-dead-letter-routing-key")


@pytest.fixture
def api(rabbit: Broker) -> ManagementApi:
    return rabbit.node.api


@pytest.fixture
def name(rabbit: Broker) -> str:
    """The name of a queue and, with something behind it, of an exchange."""
    return rabbit.queues.name("declare")


def told(rabbit: Broker, folder: Path, *args: str) -> Said:
    return run("declare", *args, cwd=folder, env={"CHRONICLE_URL": rabbit.url})


@pytest.mark.parametrize("queue_type", list(QueueType))
def test_the_topology_is_exactly_as_planned(
    rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path, queue_type: QueueType
) -> None:
    """R-003-16 to 19, 26 to 31, 37, RB8, RB12: by the command, durable, and there is nothing else."""
    options = ("--queue", name, "--exchange", f"{name}.main", "--routing-key", "order.*", "--ttl", "5m")
    more = ("--retry-delay", "5s,30s", "--queue-type", queue_type.value)
    said = told(rabbit, tmp_path, *options, *more)
    assert said.code == 0, said.err
    quorum = queue_type is QueueType.QUORUM
    kind = {"x-queue-type": "quorum"} if quorum else {}
    safe = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"} if quorum else {}
    back = {**kind, **safe, DEAD[0]: "", DEAD[1]: name}
    assert api.queues(name) == {
        name: {**kind, **safe, DEAD[0]: f"{name}.main.dlx", DEAD[1]: f"{name}.dlq", "x-message-ttl": 300_000},
        f"{name}.dlq": {},
        f"{name}.retry.5s": {**back, "x-message-ttl": 5_000},
        f"{name}.retry.30s": {**back, "x-message-ttl": 30_000},
    }
    assert api.exchanges(name) == {f"{name}.main": "topic", f"{name}.main.dlx": "topic"}
    assert api.bindings(f"{name}.main.dlx") == [(f"{name}.dlq", f"{name}.dlq")]
    assert api.bindings(f"{name}.main") == [(name, "order.*")]


def test_declaring_again_changes_nothing_and_says_so(rabbit: Broker, name: str) -> None:
    """R-003-19: idempotent, so it can run at every start."""
    options = QueueOptions(exchange=f"{name}.main", ttl=60.0)
    first, again = (declare(rabbit.url, name, options) for _ in range(2))
    assert {done for _, done in first} == {Done.MADE, Done.BOUND}
    assert {done for _, done in again} == {Done.THERE, Done.BOUND}
    assert [step for step, _ in first] == [step for step, _ in again]


def test_a_queue_that_need_not_survive(rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path) -> None:
    """R-003-10, 37, 38: the main queue only; a difference is explained and changes nothing."""
    options = QueueOptions(exchange=f"{name}.main", durable=False)
    again = declare(rabbit.url, name, options), declare(rabbit.url, name, options)
    assert {done for _, done in again[1]} == {Done.THERE, Done.BOUND}
    kept = {f"{name}.dlq", *(f"{name}.retry.{step}" for step in ("5s", "30s", "5m"))}
    assert (rabbit.queues.exists(name), set(api.queues(name))) == (True, kept)
    assert api.exchanges(name) == {f"{name}.main": "topic", f"{name}.main.dlx": "topic"}
    said = told(rabbit, tmp_path, "--queue", name, "--exchange", f"{name}.main")
    assert said.code == 2
    assert f"queue {name}: durable is currently false, but true was asked for" in said.problems[0]
    agreed = told(rabbit, tmp_path, "--queue", name, "--exchange", f"{name}.main", "--no-durable")
    assert f"queue {name}, not durable, " in agreed.out
    assert f"exists: queue {name}\n" in agreed.out


def test_a_dry_run_makes_nothing(rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path) -> None:
    """It prints the plan and does not even connect: the port is one where nobody listens."""
    args = ("--dry-run", "--queue", name, "--exchange", f"{name}.main")
    elsewhere = run("declare", *args, cwd=tmp_path, env={"CHRONICLE_URL": "amqp://localhost:1/"})
    said = told(rabbit, tmp_path, *args)
    assert (said.code, said.out) == (0, elsewhere.out)
    assert f"queue {name}.dlq, durable" in said.out
    assert (api.queues(name), api.exchanges(name)) == ({}, {})


def test_no_dead_letters(rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path) -> None:
    """R-003-3, 15."""
    assert told(rabbit, tmp_path, "--queue", name, "--no-dead-letter").code == 0
    assert api.queues(name) == {name: {}}
    assert api.exchanges(name) == {}


def test_a_foreign_exchange_may_be_of_any_kind(
    rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path
) -> None:
    """R-003-3: proca's fail exchange is a fanout; it is used as it is."""
    with rabbit.queues.channel() as channel:
        channel.exchange_declare(f"{name}.fail", "fanout", durable=True)
        channel.exchange_declare(f"{name}.main", "headers", durable=True)
    own = ("--dead-letter-exchange", f"{name}.fail", "--dead-letter-routing-key", "dead")
    said = told(rabbit, tmp_path, "--queue", name, "--exchange", f"{name}.main", *own)
    assert said.code == 0, said.err
    assert api.queues(name)[name] == {DEAD[0]: f"{name}.fail", DEAD[1]: "dead"}
    assert api.bindings(f"{name}.fail") == [(f"{name}.dlq", "dead")]
    assert api.exchanges(name) == {f"{name}.main": "headers", f"{name}.fail": "fanout"}


def test_a_conflict_is_explained_and_nothing_is_changed(
    rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path
) -> None:
    """R-003-38, RB14, D-15: exit 2, which argument, what is there, what was wanted, the choices."""
    rabbit.queues.declare(name, {"x-message-ttl": 1234567})
    said = told(rabbit, tmp_path, "--queue", name, "--ttl", "5m", "--no-dead-letter", "--retry-delay", "5s")
    assert said.code == 2
    assert f"queue {name}: x-message-ttl is currently 1234567, but 300000 was asked for" in said.problems[0]
    assert "nothing was changed" in said.problems[0]
    assert "policy" in said.err
    assert "delete it yourself" in said.err
    assert "created" not in said.out
    assert api.queues(name) == {name: {"x-message-ttl": 1234567}}


def test_every_conflict_is_named_at_once(rabbit: Broker, api: ManagementApi, name: str) -> None:
    """The last step is looked at before the first is made."""
    rabbit.queues.declare(f"{name}.dlq", quorum=True)
    rabbit.queues.declare(name, {"x-message-ttl": 5})
    with rabbit.queues.channel() as channel:
        channel.exchange_declare(f"{name}.dlx", "direct", durable=True)
    with pytest.raises(BrokerRefused) as refused:
        declare(rabbit.url, name, QueueOptions(ttl=0.005))
    for words in (
        f"exchange {name}.dlx: type is currently direct, but topic was asked for",
        f"queue {name}.dlq: x-queue-type is currently quorum, but classic was asked for",
        f"queue {name}: x-dead-letter-exchange is currently none, but {name}.dlx was asked for",
    ):
        assert words in refused.value.problem
    assert sorted(api.queues(name)) == [name, f"{name}.dlq"]


@pytest.fixture
def restricted(rabbit: Broker, name: str) -> Iterator[str]:
    """The URL of a user without any rights yet, called like the queue."""
    rabbit.node.api.add_user(name, "secret-canary")
    yield rabbit.url.replace("guest:guest", f"{name}:secret-canary")
    rabbit.node.api.delete_user(name)


def test_a_user_who_may_not_declare_is_told_what_is_needed(
    rabbit: Broker, name: str, restricted: str
) -> None:
    """Z14: what the page says about rights is in the remedy; the password is nowhere."""
    rabbit.node.api.set_permissions(name, "^$", "^$", ".*")
    with pytest.raises(BrokerRefused, match="refused it") as refused:
        declare(restricted, name)
    assert "configure" in refused.value.remedy
    assert "secret-canary" not in refused.value.problem + refused.value.remedy


def test_the_rights_that_declaring_takes(rabbit: Broker, name: str, restricted: str) -> None:
    """Z14: those of the page, no more; without amq.default the retry queues fail and the rest was made."""
    options = QueueOptions(exchange=f"{name}.main")
    own = f"^{name}"
    rabbit.node.api.set_permissions(name, own, own, own)
    with pytest.raises(BrokerRefused, match=r"amq\.default.*; 3 before it were created"):
        declare(restricted, name, options)
    rabbit.node.api.set_permissions(name, own, rf"{own}|^amq\.default$", own)
    assert [done for _, done in declare(restricted, name, options)][-1] is Done.BOUND


def test_somebody_elses_exclusive_queue_is_refused(rabbit: Broker, name: str) -> None:
    with rabbit.queues.channel() as channel:
        channel.queue_declare(name, exclusive=True)
        with pytest.raises(BrokerRefused) as refused:
            declare(rabbit.url, name, QueueOptions(dead_letter=Disabled(), retry=None))
        assert "exclusive" in refused.value.remedy


def test_a_broker_that_never_answers_is_given_up(rabbit: Broker, name: str) -> None:
    """Never a silent hang at the door."""
    with Proxy(rabbit.url) as proxy:
        proxy.set(Mode.BLACK_HOLE)
        with pytest.raises(BrokerUnreachable):
            declare(f"{proxy.url_for(rabbit.url)}?connection_timeout=500", name)


def test_a_broker_that_falls_silent_is_given_up(rabbit: Broker, api: ManagementApi, name: str) -> None:
    """Never a silent hang later: missed heartbeats end it, and the next try finishes what was begun."""
    options = QueueOptions(exchange=f"{name}.main", retry=MaxAttempts(5, (1.0, 2.0, 3.0, 4.0)))
    with Proxy(rabbit.url, delay=0.05) as proxy, ThreadPoolExecutor(1) as elsewhere:
        proxy.set(Mode.DELAY)
        url = f"{proxy.url_for(rabbit.url)}?heartbeat=1"
        declaring = elsewhere.submit(declare, url, name, options)
        wait_for(lambda: api.exchanges(name), PATIENCE, "the first step")
        proxy.set(Mode.BLACK_HOLE)
        with pytest.raises(BrokerUnreachable):
            declaring.result(PATIENCE)
    assert {done for _, done in declare(rabbit.url, name, options)} == {Done.MADE, Done.THERE, Done.BOUND}


@pytest.mark.parametrize("queue_type", list(QueueType))
def test_what_expires_and_what_is_refused_is_kept(rabbit: Broker, name: str, queue_type: QueueType) -> None:
    """R-003-31: a TTL and a nack without requeue both end in the dead-letter queue."""
    declare(rabbit.url, name, QueueOptions(ttl=0.2, queue_type=queue_type, retry=None))
    rabbit.queues.publish(name, b"expires")
    dead = f"{name}.dlq"
    wait_for(lambda: rabbit.queues.depth(dead) == 1, PATIENCE, "the expired message")
    slow = f"{name}.slow"
    declare(rabbit.url, slow, QueueOptions(queue_type=queue_type, retry=None))
    rabbit.queues.publish(slow, b"refused")
    wait_for(lambda: rabbit.queues.depth(slow) == 1, PATIENCE, "the published message")
    with rabbit.queues.channel() as channel:
        method, _, _ = channel.basic_get(slow)
        assert method is not None
        channel.basic_nack(method.delivery_tag, requeue=False)
        wait_for(lambda: rabbit.queues.depth(f"{slow}.dlq") == 1, PATIENCE, "the refused message")
    (expired,) = rabbit.queues.get_all(dead)
    (refused,) = rabbit.queues.get_all(f"{slow}.dlq")
    assert [(m.body, m.headers["x-death"][0]["reason"]) for m in (expired, refused)] == [
        (b"expires", "expired"),
        (b"refused", "rejected"),
    ]


def test_a_retry_queue_gives_messages_back(rabbit: Broker, name: str) -> None:
    """RB12: after its TTL, to the main queue."""
    declare(rabbit.url, name, QueueOptions(retry=MaxAttempts(2, (0.2,))))
    rabbit.queues.publish(f"{name}.retry.200ms", b"again")
    wait_for(lambda: rabbit.queues.depth(name) == 1, PATIENCE, "the message that waited")


def test_consume_declares_what_it_needs(
    rabbit: Broker, api: ManagementApi, name: str, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """R-003-19, D-15: nothing is there before; a failing message is in the dead-letter queue afterwards."""
    env = {"CHRONICLE_URL": rabbit.url, "REHEARSED": str(tmp_path / "calls"), "CHRONICLE_TTL": "10m"}
    shape = ("--declare", "--exchange", f"{name}.main", "--routing-key", "#", "--schema", "raw")
    process = chronicle("consume", "--queue", name, "--syncer", f"{syncers}:no", *shape, env=env)
    process.wait_for_line("consumer.ready", PATIENCE)
    assert "queue.dead_letters_unknown" not in process.stderr
    assert api.queues(name)[name]["x-message-ttl"] == 600_000
    with rabbit.queues.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish(f"{name}.main", "any.key", b"{}", pika.BasicProperties(), mandatory=True)
    wait_for(lambda: rabbit.queues.depth(f"{name}.dlq") == 1, PATIENCE, "the dead letter")


def test_consume_declares_again_when_the_broker_lost_it(
    rabbit: Broker, name: str, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """D-15: a queue that is gone after a reconnect is there again, with its dead letters."""
    env = {"CHRONICLE_URL": rabbit.url, "REHEARSED": str(tmp_path / "calls")}
    args = ("--declare", "--schema", "raw", "--reconnect-max", "1s")
    process = chronicle("consume", "--queue", name, "--syncer", f"{syncers}:yes", *args, env=env)
    process.wait_for_line("consumer.ready", PATIENCE)
    for queue in (f"{name}.dlq", name):
        rabbit.queues.delete(queue)
    wait_for(lambda: len(process.lines("consumer.ready")) == 2, PATIENCE, "the second start")
    assert rabbit.queues.exists(f"{name}.dlq")
    rabbit.queues.publish(name, b"{}")
    process.wait_for_line("message.acked", PATIENCE)


def test_consume_refuses_a_conflict_and_changes_nothing(
    rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path
) -> None:
    """RB14: exit 2, the queue as it was."""
    rabbit.queues.declare(name)
    args = ("--queue", name, "--syncer", f"{syncers}:yes", "--declare", "--log-format", "json")
    said = run("consume", *args, cwd=tmp_path, env={"CHRONICLE_URL": rabbit.url, "REHEARSED": "calls"})
    assert said.code == 2
    assert f"x-dead-letter-exchange is currently none, but {name}.dlx was asked for" in said.err
    assert (api.queues(name), api.exchanges(name)) == ({name: {}}, {})


def test_retry_queues_for_a_queue_of_somebody_elses(
    rabbit: Broker, api: ManagementApi, name: str, tmp_path: Path
) -> None:
    """D-2, D-9: a queue with other arguments stays as it is; one that is not there gets no retry queues."""
    args = ("--queue", name, "--retry-delay", "5s", "--only-retry")
    missing = told(rabbit, tmp_path, *args)
    assert (missing.code, api.queues(name)) == (2, {})
    rabbit.queues.declare(name, arguments={"x-message-ttl": 77_000})
    assert told(rabbit, tmp_path, *args[:-1]).code == 2
    said = told(rabbit, tmp_path, *args)
    assert (said.code, said.out.splitlines()[-2:]) == (
        0,
        [f"exists: queue {name}", f"created: queue {name}.retry.5s"],
    )
    assert set(api.queues(name)) == {name, f"{name}.retry.5s"}
    assert api.queues(name)[name] == {"x-message-ttl": 77_000}
