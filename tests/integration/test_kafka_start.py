"""Starting at Kafka: what is refused with one line and a remedy (D-9, H2), what is waited for, who may in."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from support.fixtures import Kafka, StartChronicle, StartKafka
from support.kafka_server import KafkaServer
from support.ports import free_ports
from support.process import ChronicleProcess
from support.topic_stage import PATIENCE, TopicStage

SECRET: Final = "c4nary/p@ss wörd"
ENCODED: Final = "c4nary%2Fp%40ss%20w%C3%B6rd"
REFUSED: Final = 15.0  # seconds, on a busy machine; an operator waits for ten at most
SLACK: Final = 2.5  # beyond a limit: the start and the end of a process on a busy machine


@pytest.fixture
def stage(kafka: Kafka, chronicle: StartChronicle, tmp_path: Path) -> TopicStage:
    return TopicStage(kafka, chronicle, tmp_path)


@pytest.fixture(scope="module")
def guarded(private_kafka: StartKafka) -> KafkaServer:
    """A server with TLS and log-ins, where a user may do only what was allowed."""
    return private_kafka(tls=True, users={"crm": SECRET}, acls=True)


@pytest.fixture(scope="module")
def odd(private_kafka: StartKafka) -> KafkaServer:
    """A server with a certificate for another name, and with one way to log in only."""
    only = {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    return private_kafka(wrong_host=True, users={"crm": SECRET}, settings=only)


@pytest.fixture
def guarded_stage(guarded: KafkaServer, chronicle: StartChronicle, tmp_path: Path) -> TopicStage:
    guarded.forbid("crm")
    return TopicStage(guarded, chronicle, tmp_path)


def assert_refused(process: ChronicleProcess, *words: str) -> None:
    """Exit 2, one line that says what is wrong, one that says what to do, and no secret (H2, Z4)."""
    assert process.wait(REFUSED) == 2, process.stderr
    lines = process.words.splitlines()
    warning = "chronicle: warning: "
    (at,) = [n for n, line in enumerate(lines) if line.startswith("chronicle: ") and warning not in line]
    assert all(word in lines[at] for word in words), lines[at]
    assert lines[at + 1].startswith("  remedy: ")
    assert "Traceback" not in process.stderr
    assert_no_secret(process)


def assert_no_secret(process: ChronicleProcess) -> None:
    said = process.stdout + process.stderr
    for form in (SECRET, ENCODED, "c4nary"):
        assert form not in said


# --- log-ins and rights -------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("level", ["debug", "error"])
def test_a_wrong_password_is_refused(
    guarded: KafkaServer, guarded_stage: TopicStage, mechanism: str, level: str
) -> None:
    """H2, D-9, Z4: and it is nowhere in the output, at any level."""
    options = ("--log-level", level, "--set", f"sasl.mechanism={mechanism}")
    process = guarded_stage.start("yes", *options, url=guarded.url_as("crm", f"{SECRET}x"))
    assert_refused(process, "password", "127.0.0.1")


def test_a_way_to_log_in_that_the_brokers_do_not_know_is_refused(
    odd: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """H2: and those they know are named."""
    stage = TopicStage(odd, chronicle, tmp_path)
    process = stage.start("yes", url=odd.url_as("crm"))
    assert_refused(process, "way to log in")
    assert "SCRAM-SHA-512" in process.stderr


def test_a_way_to_log_in_that_does_not_exist_is_refused(
    guarded: KafkaServer, guarded_stage: TopicStage
) -> None:
    """H2: before anybody is asked."""
    process = guarded_stage.start("yes", "--set", "sasl.mechanism=NONSENSE", url=guarded.url_as("crm"))
    assert_refused(process, "sasl.mechanism")


def test_a_login_at_a_port_without_is_refused(guarded_stage: TopicStage) -> None:
    """H2."""
    url = guarded_stage.url.replace("kafka://", f"kafka://crm:{ENCODED}@")
    assert_refused(guarded_stage.start("yes", url=url), "login")


def test_no_login_at_a_port_that_wants_one_is_explained(
    guarded: KafkaServer, guarded_stage: TopicStage
) -> None:
    """H2: such a port closes the connection without a word, so it may also be a broker that starts."""
    port = urlsplit(guarded.url_as("crm")).port
    process = guarded_stage.start("yes", "--startup-timeout", "4s", url=f"kafka://127.0.0.1:{port}")
    assert process.wait(REFUSED) in (2, 3), process.stderr
    assert "login" in process.stderr


def allow(server: KafkaServer, stage: TopicStage, *but: str) -> None:
    """Allow all that a consumer needs, except this."""
    if "topic" not in but:
        server.allow("crm", "READ", "DESCRIBE", topic=stage.topic)
    if "group" not in but:
        server.allow("crm", "READ", group=stage.group)
    if "dlq" not in but:
        server.allow("crm", "WRITE", "DESCRIBE", topic=stage.dead)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_documented_rights_are_enough(
    guarded: KafkaServer, guarded_stage: TopicStage, mechanism: str
) -> None:
    """Z14: to consume, to commit and to dead-letter, by TLS; and the secret shows nowhere."""
    stage = guarded_stage
    allow(guarded, stage)
    assert guarded.certs is not None
    stage.publish({"ok": True}, {"ok": False})
    options = ("--tls-ca", str(guarded.certs.ca), "--set", f"sasl.mechanism={mechanism}")
    process = stage.consume("as_told", *options, "--log-level", "debug", url=guarded.tls_url_as("crm"))
    assert process.returncode == 0, process.stderr
    assert len(stage.dead_letters()) == 1
    assert stage.committed() == 2
    assert_no_secret(process)


@pytest.mark.parametrize("missing", ["topic", "group", "dlq"])
def test_a_right_that_is_missing_is_named(
    guarded: KafkaServer, guarded_stage: TopicStage, missing: str
) -> None:
    """H2, D-9, K5, Z14."""
    stage = guarded_stage
    allow(guarded, stage, missing)
    named = {"topic": stage.topic, "group": stage.group, "dlq": stage.dead}[missing]
    assert_refused(stage.start("yes", url=guarded.url_as("crm")), named)


def test_a_right_to_see_and_not_to_write_dead_letters_is_refused(
    guarded: KafkaServer, guarded_stage: TopicStage
) -> None:
    """K5: before the first failure would find out."""
    allow(guarded, guarded_stage, "dlq")
    guarded.allow("crm", "DESCRIBE", topic=guarded_stage.dead)
    process = guarded_stage.start("yes", url=guarded.url_as("crm"))
    assert_refused(process, "may not write to", guarded_stage.dead)


# --- topics and settings ------------------------------------------------------------------------------


def test_an_unknown_topic_is_refused_and_not_made(stage: TopicStage) -> None:
    """D-9, D-15, K1, K7."""
    stage.topic = stage.topics.name("missing")
    process = stage.start("yes")
    assert_refused(process, "no topic", stage.topic)
    assert "declare" in process.stderr
    assert not stage.topics.exists(stage.topic)


def test_a_missing_place_for_dead_letters_is_refused(kafka: Kafka, stage: TopicStage) -> None:
    """K5: and the remedy makes it."""
    topics = kafka.server.topics
    topics.delete(stage.dead)
    process = stage.start("yes")
    assert_refused(process, stage.dead)
    assert "declare" in process.stderr
    assert not topics.exists(stage.dead)
    stage.publish({"n": 1})
    assert stage.consume("yes", "--declare").returncode == 0
    assert topics.exists(stage.dead)


REFUSED_SETTINGS: Final = (
    "enable.auto.commit=true", "enable.auto.offset.store=true", "auto.offset.reset=latest",
    "allow.auto.create.topics=true", "bootstrap.servers=127.0.0.1:1", "group.id=other",
    "enable.partition.eof=false", "acks=1", "enable.idempotence=false",
    "ssl.endpoint.identification.algorithm=none", "enable.ssl.certificate.verification=false",
    "sasl.password=c4nary", "test.mock.num.brokers=1", "transactional.id=x", "plugin.library.paths=x",
)  # fmt: skip


def test_settings_that_would_break_a_promise_are_refused(stage: TopicStage) -> None:
    """K1, H2, Z9: each with its reason."""
    running = {setting: stage.start("yes", "--set", setting) for setting in REFUSED_SETTINGS}
    for setting, process in running.items():
        assert process.wait(PATIENCE) == 2, (setting, process.stderr)
        assert "is not taken" in process.stderr, (setting, process.stderr)
        assert "remedy: " in process.words, setting
        assert_no_secret(process)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("no.such.setting=1", ("no setting", "no.such.setting")),
        ("fetch.min.bytes=many", ("fetch.min.bytes",)),
        ("session.timeout.ms=-1", ("session.timeout.ms",)),
        ("session.timeout.ms=3000000", ("session.timeout.ms",)),
        ("group.protocol=nonsense", ("group.protocol",)),
        ("max.poll.interval.ms=10", ("max.poll.interval.ms",)),
    ],
)
def test_a_wrong_setting_is_refused(stage: TopicStage, setting: str, words: tuple[str, ...]) -> None:
    """H2: librdkafka's word about it, and ours where it goes on."""
    assert_refused(stage.start("yes", "--set", setting), *words)


# --- TLS ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", ["300000", "0x493e0", "01117740", "300000.0", "300000ms"])
def test_a_number_is_what_the_client_takes_for_one(stage: TopicStage, interval: str) -> None:
    process = stage.consume("yes", "--set", f"max.poll.interval.ms={interval}")
    assert process.returncode == 0, process.stderr


def test_an_unknown_authority_is_refused(guarded: KafkaServer, guarded_stage: TopicStage) -> None:
    """Z9, H2."""
    assert_refused(guarded_stage.start("yes", url=guarded.tls_url), "certificate")


def test_another_name_in_the_certificate_is_refused(
    odd: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """Z9, H2."""
    assert odd.certs is not None
    stage = TopicStage(odd, chronicle, tmp_path)
    process = stage.start("yes", "--tls-ca", str(odd.certs.ca), url=odd.tls_url)
    assert_refused(process, "certificate")


def test_tls_to_a_plain_port_is_refused(guarded: KafkaServer, guarded_stage: TopicStage) -> None:
    """Z9, H2: never quietly without."""
    assert guarded.certs is not None
    url = guarded.url.replace("kafka://", "kafka+ssl://").replace("127.0.0.1", "localhost")
    options = ("--tls-ca", str(guarded.certs.ca), "--startup-timeout", "4s")
    assert_refused(guarded_stage.start("yes", *options, url=url), "TLS")


def test_a_plain_connection_to_the_tls_port_is_explained(
    guarded: KafkaServer, guarded_stage: TopicStage
) -> None:
    """H2."""
    port = urlsplit(guarded.tls_url).port
    process = guarded_stage.start("yes", "--startup-timeout", "4s", url=f"kafka://localhost:{port}")
    assert process.wait(REFUSED) in (2, 3), process.stderr
    assert "TLS" in process.stderr
    assert "Traceback" not in process.stderr


# --- brokers that are not there, or say nothing -------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"kafka://127.0.0.1:{server.getsockname()[1]}"


def test_brokers_that_are_not_there_are_given_up(stage: TopicStage) -> None:
    """D-9, X6: exit code 3 when the time is over, and no secret in what was said until then."""
    url = f"kafka://crm:{ENCODED}@127.0.0.1:{free_ports(1)[0]}"
    began = time.monotonic()
    process = stage.start("yes", "--startup-timeout", "4s", "--log-level", "debug", url=url)
    assert process.wait(PATIENCE) == 3, process.stderr
    assert time.monotonic() - began < 4 + SLACK + 1.5
    tries = process.lines("connection.retry")
    assert all("connection refused" in line["text"] for line in tries)
    assert 2 <= len(tries) <= 4
    # The client library's own complaints, and what we make of them, are not more than one a second.
    complaints = [line for line in process.lines() if line["level"] != "info" and "kafka" in line["event"]]
    assert len(complaints) <= 5
    assert not process.lines("consumer_poll_failed")
    assert_no_secret(process)


def test_brokers_that_come_later_are_waited_for(
    odd: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """D-9."""
    server, stage = odd, TopicStage(odd, chronicle, tmp_path)
    stage.publish({"n": 1})
    server.kill()
    process = stage.start("yes", "--startup-timeout", "60s", "--max-messages", "1")
    process.wait_for_line("connection.retry")
    server.start()
    assert process.wait(PATIENCE) == 0
    assert len(stage.calls()) == 1


@pytest.mark.timed
def test_a_silent_peer_keeps_the_startup_timeout(stage: TopicStage, silent: str) -> None:
    """D-9, X6: exit code 3 when the time is over."""
    began = time.monotonic()
    process = stage.start("yes", "--startup-timeout", "2s", url=silent)
    assert process.wait(PATIENCE) == 3, process.stderr
    assert time.monotonic() - began < 2 + SLACK + 1.5
    assert "no answer in time" in process.stderr


@pytest.mark.timed
def test_a_silent_peer_keeps_nobody_who_wants_to_stop(stage: TopicStage, silent: str) -> None:
    """R-001-38: SIGTERM is obeyed in the middle of a login."""
    process = stage.start("yes", url=silent)
    process.wait_for_line("consumer.starting")
    time.sleep(1.0)
    began = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert time.monotonic() - began < SLACK
