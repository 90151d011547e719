"""Starting: what is refused with one line and a remedy (D-9, H2), what is waited for, what a broker sees."""

from __future__ import annotations

import signal
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from chronicle.errors import BrokerRefused
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.seam import Closing, Connector, never
from support import samples
from support.certs import Certs, Pair
from support.fixtures import Broker, StartChronicle
from support.ports import free_ports
from support.process import ChronicleProcess
from support.proxy import Mode, Proxy
from support.stage import PATIENCE, Stage, counted, stopped
from support.waiting import wait_for

BODY: Final = samples.body("action-plain.json")
SECRET: Final = "c4nary/p@ss wörd"
ENCODED: Final = "c4nary%2Fp%40ss%20w%C3%B6rd"
LEVELS: Final = ("debug", "info", "error")


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path)


@pytest.fixture
def certs(rabbit: Broker) -> Certs:
    assert rabbit.node.certs is not None
    return rabbit.node.certs


def address(stage: Stage, *, user: str = "guest", password: str = "guest", vhost: str = "%2F") -> str:
    return f"amqp://{user}:{password}@127.0.0.1:{urlsplit(stage.url).port}/{vhost}"


def assert_refused(process: ChronicleProcess, *words: str) -> None:
    """Exit 2, one line that says what is wrong, one that says what to do, and no secret (H2, Z4)."""
    assert process.wait(PATIENCE) == 2, process.stderr
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


@pytest.mark.parametrize("level", LEVELS)
def test_a_wrong_password_is_refused(stage: Stage, level: str) -> None:
    """H2, D-9, Z4: and it is nowhere in the output, at any level."""
    url = address(stage, password=ENCODED)
    process = stage.start("yes", "--log-level", level, env={"CHRONICLE_URL": url})
    assert_refused(process, "password", "127.0.0.1")


def test_a_wrong_password_on_the_command_line_is_refused_and_warned_about(stage: Stage) -> None:
    """Z3, Z4."""
    process = stage.start("yes", "--url", address(stage, password=ENCODED), "--log-level", "debug")
    assert_refused(process, "password")
    assert "on the command line" in process.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_a_user_without_permission_is_refused(stage: Stage, rabbit: Broker, level: str) -> None:
    """H2, D-9, Z14: a user that may not read."""
    user = stage.queues.name("user")
    rabbit.node.api.add_user(user, SECRET)
    rabbit.node.api.set_permissions(user, "", "", "")
    url = address(stage, user=user, password=ENCODED)
    process = stage.start("yes", "--log-level", level, env={"CHRONICLE_URL": url})
    assert_refused(process, "access", stage.queue)


def test_a_user_that_may_only_read_is_enough(stage: Stage, rabbit: Broker) -> None:
    """Z14: consuming needs no right to write or to configure."""
    user = stage.queues.name("user")
    rabbit.node.api.add_user(user, SECRET)
    rabbit.node.api.set_permissions(user, "", "", stage.queue)
    stage.publish(BODY)
    process = stage.consume("no", env={"CHRONICLE_URL": address(stage, user=user, password=ENCODED)})
    assert process.returncode == 0, process.stderr
    assert len(stage.dead_letters(1)) == 1
    assert_no_secret(process)


def test_an_unknown_virtual_host_is_refused(stage: Stage) -> None:
    """D-9."""
    process = stage.start("yes", env={"CHRONICLE_URL": address(stage, vhost="nobody-made-this")})
    assert_refused(process, "virtual host", "nobody-made-this")


@pytest.fixture
def vhost(rabbit: Broker) -> Iterator[str]:
    """A virtual host with nothing in it."""
    name = rabbit.queues.name("vhost")
    rabbit.node.api.add_vhost(name)
    yield name
    rabbit.node.api.delete_vhost(name)


def test_a_virtual_host_without_room_is_waited_for(stage: Stage, rabbit: Broker, vhost: str) -> None:
    """D-9: a connection of somebody else's ends, and then there is room; until then its words are told."""
    rabbit.node.api.limit_connections(vhost, 0)
    url = address(stage, vhost=vhost)
    process = stage.start("yes", "--declare", "--until-empty", env={"CHRONICLE_URL": url})
    waited = process.wait_for_line("connection.retry", PATIENCE)
    assert "connection limit (0) is reached" in waited["text"]
    rabbit.node.api.limit_connections(vhost, 10)
    assert process.wait(PATIENCE) == 0, process.stderr


def test_a_virtual_host_that_is_down_is_given_up(stage: Stage, rabbit: Broker, vhost: str) -> None:
    """D-9: its messages cannot be read; it exists, so nothing is wrong with the URL."""
    rabbit.node.evaluate(f'rabbit_vhost_sup_sup:stop_and_delete_vhost(<<"{vhost}">>)')
    env = {"CHRONICLE_URL": address(stage, vhost=vhost)}
    process = stage.start("yes", "--startup-timeout", "500ms", env=env)
    assert process.wait(PATIENCE) == 3
    assert "is down" in process.words


def test_an_unknown_queue_is_refused_and_not_made(stage: Stage) -> None:
    """D-9, D-15, RB14."""
    name = stage.queues.name("missing")
    assert_refused(stage.start("yes", queue=name), "no queue", name)
    assert not stage.queues.exists(name)


def test_a_stream_is_refused(stage: Stage) -> None:
    """RB18: an ack in a stream settles nothing; nobody waits for its first message to find that out."""
    name = stage.queues.declare(stage.queues.name("stream"), {"x-queue-type": "stream"})
    process = stage.start("yes", queue=name)
    assert_refused(process, "is a stream", name)
    assert not process.lines("consumer.ready")


@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
def test_asking_whether_it_is_a_stream_disturbs_no_message(stage: Stage, quorum: bool) -> None:
    """RB18: nothing is handed out before the consumer is ready, so nothing comes back as redelivered."""
    queue = stage.queues.declare(stage.queues.name("asked"), quorum=quorum)
    stage.queues.publish(queue, BODY, BODY)
    process = stage.consume("yes", queue=queue)
    assert process.returncode == 0, process.stderr
    assert [(call["redelivered"], call["attempts"]) for call in stage.calls()] == [(False, 1)] * 2


def test_what_a_start_asks_is_asked_together(stage: Stage) -> None:
    """To a broker that answers late, every question that waited for another one's answer would be felt."""
    queue = stage.queues.declare(stage.queues.name("far"))
    steps = ("hello", "log in", "tune and open", "channels", "look", "prefetch", "consume")
    with Proxy(stage.url, delay=0.05) as proxy:
        proxy.set(Mode.DELAY)
        transport = RabbitTransport(Connector(proxy.url_for(stage.url), queue))
        assert transport.open(never) == 0
        assert proxy.exchanges <= len(steps)
        transport.close(Closing.SETTLED)


def test_a_stream_made_in_the_place_of_a_queue_is_refused_at_its_first_message(stage: Stage) -> None:
    """RB18: a broker is asked once; after that the messages tell."""
    queues = stage.queues
    queue = queues.declare(queues.name("changed"))
    transport = RabbitTransport(Connector(stage.url, queue))
    transport.open(lambda: False)
    transport.close(Closing.LOST)
    queues.delete(queue)
    queues.declare(queue, {"x-queue-type": "stream"})
    transport.open(lambda: False)
    try:
        queues.publish(queue, BODY)
        with pytest.raises(BrokerRefused, match="is a stream"):
            wait_for(lambda: transport.receive(1, 0.1), PATIENCE, "a message", every=0)
    finally:
        transport.close()


def test_a_broker_that_is_not_there_is_given_up(stage: Stage) -> None:
    """D-9, X6: tried for --startup-timeout, then exit code 3."""
    url = f"amqp://guest:{ENCODED}@127.0.0.1:{free_ports(1)[0]}/"
    process = stage.start("yes", "--startup-timeout", "1s", env={"CHRONICLE_URL": url})
    assert process.wait(PATIENCE) == 3
    assert len(process.lines("connection.retry")) >= 2
    assert stopped(process)["exit_code"] == 3
    assert "refused" in stopped(process)["text"]
    assert_no_secret(process)


def test_a_port_that_never_answers_is_given_up(stage: Stage) -> None:
    """D-9: whatever takes the connection and says nothing does not hang the start."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://guest:{ENCODED}@127.0.0.1:{silent.getsockname()[1]}/?connection_timeout=500"
        process = stage.start("yes", "--startup-timeout", "1s", env={"CHRONICLE_URL": url})
        assert process.wait(PATIENCE) == 3
    assert "no answer in time" in stopped(process)["text"]
    assert_no_secret(process)


def test_a_broker_that_comes_up_later_is_found(stage: Stage) -> None:
    """D-9: a container that starts before its broker."""
    stage.publish(BODY)
    with Proxy(stage.url) as proxy:
        proxy.refuse()
        process = stage.start("yes", "--until-empty", env={"CHRONICLE_URL": proxy.url_for(stage.url)})
        process.wait_for_line("connection.retry", PATIENCE)
        proxy.accept()
        assert process.wait(PATIENCE) == 0
    assert counted(process) == {"received": 1, "ack": 1}
    assert process.wait_for_line("consumer.ready")["connect_attempts"] >= 2


def test_a_stop_while_nobody_answers_is_obeyed(stage: Stage) -> None:
    """R-004-2: SIGTERM ends the wait for a broker, too."""
    url = f"amqp://guest@127.0.0.1:{free_ports(1)[0]}/"
    process = stage.start("yes", "--startup-timeout", "0", env={"CHRONICLE_URL": url})
    process.wait_for_line("connection.retry", PATIENCE)
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


@contextmanager
def web_server() -> Iterator[int]:
    """Where a broker was expected, somebody who answers everything with 400; the port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if self.request.recv(100):
                self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def test_a_port_that_speaks_something_else_is_told_from_a_broker(stage: Stage) -> None:
    """D-9: the management interface, say; but it may be a broker that restarts behind a proxy."""
    with web_server() as port:
        url = f"amqp://guest:{ENCODED}@127.0.0.1:{port}/"
        process = stage.start("yes", "--startup-timeout", "1s", env={"CHRONICLE_URL": url})
        assert process.wait(PATIENCE) == 3
    assert "is the port right" in stopped(process)["text"]
    assert_no_secret(process)


def test_a_port_that_speaks_no_tls_is_refused(stage: Stage) -> None:
    """D-9, Z9."""
    with web_server() as port:
        url = f"amqps://guest:{ENCODED}@127.0.0.1:{port}/"
        assert_refused(stage.start("yes", env={"CHRONICLE_URL": url}), "there is no TLS on that port")


@pytest.mark.parametrize("scheme", ["amqps", "rediss"])
def test_a_port_that_hangs_up_on_tls_is_told_in_words(stage: Stage, scheme: str) -> None:
    """D-9: a load balancer without a broker behind it. OpenSSL's own text ends in a line of its source."""

    class HangsUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangsUp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"{scheme}://guest:{ENCODED}@127.0.0.1:{server.server_address[1]}/"
        process = stage.start("yes", "--startup-timeout", "1s", env={"CHRONICLE_URL": url})
        assert process.wait(PATIENCE) == 3
        server.shutdown()
    assert "TLS failed: unexpected eof while reading; given up" in stopped(process)["text"]
    assert_no_secret(process)


def over_tls(stage: Stage, url: str, ca: Path | None, who: Pair | None) -> ChronicleProcess:
    options = ["--tls-ca", str(ca)] if ca else []
    options += ["--tls-cert", str(who.cert), "--tls-key", str(who.key)] if who else []
    stage.publish(BODY)
    env = {"CHRONICLE_URL": url.replace("guest:guest", "guest"), "CHRONICLE_PASSWORD": "guest"}
    return stage.start("yes", "--until-empty", "--startup-timeout", "20s", *options, env=env)


def test_tls_with_authority_and_client_certificate_works(stage: Stage, rabbit: Broker, certs: Certs) -> None:
    """R-000-47, Z9."""
    process = over_tls(stage, rabbit.node.tls_url, certs.ca, certs.client)
    assert process.wait(PATIENCE) == 0, process.stderr
    assert counted(process) == {"received": 1, "ack": 1}


def test_tls_with_an_unknown_authority_is_refused(stage: Stage, rabbit: Broker, certs: Certs) -> None:
    """Z9, H2: verification cannot be switched off."""
    process = over_tls(stage, rabbit.node.tls_url, None, certs.client)
    assert_refused(process, "certificate is not trusted")


@contextmanager
def tls_server(shown: Pair) -> Iterator[int]:
    """Somebody who shows this certificate, which is where a client that looks at it ends; the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert, shown.key)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as trusted:
                trusted.recv(100)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def test_tls_for_another_host_is_refused(stage: Stage, certs: Certs) -> None:
    """Z9, H2."""
    with tls_server(certs.wrong_host) as port:
        process = over_tls(stage, f"amqps://guest@localhost:{port}/", certs.ca, certs.client)
        assert_refused(process, "certificate is not trusted", "mismatch")


def test_tls_without_a_client_certificate_is_refused(stage: Stage, rabbit: Broker, certs: Certs) -> None:
    """Z9, H2."""
    assert_refused(over_tls(stage, rabbit.node.tls_url, certs.ca, None), "client certificate")


def test_tls_with_a_strangers_certificate_is_refused(stage: Stage, rabbit: Broker, certs: Certs) -> None:
    """Z9, H2."""
    assert_refused(over_tls(stage, rabbit.node.tls_url, certs.ca, certs.stranger), "TLS")


def test_the_queue_s_depth_is_told_at_the_start(stage: Stage) -> None:
    """R-004-11, R-004-39: `queued` is the broker's number, not ours."""
    stage.publish(*[BODY] * 5)
    process = stage.consume("yes")
    ready = process.wait_for_line("consumer.ready")
    assert (ready["queued"], ready["text"]) == (5, "consuming, 5 waiting")
    assert stopped(process)["queued"] == 5
    assert counted(process) == {"received": 5, "ack": 5}


@pytest.mark.parametrize(
    ("options", "tag", "prefetch"),
    [
        (("--tag", "my-crm"), "my-crm", 6),
        (("--prefetch", "11"), "rehearsed", 11),
        (("--set", "prefetch=9"), "rehearsed", 9),
        (("--set", "prefetch=9", "--prefetch", "11"), "rehearsed", 11),
    ],
)
def test_what_the_broker_sees_of_a_consumer(
    stage: Stage, rabbit: Broker, options: tuple[str, ...], tag: str, prefetch: int
) -> None:
    """R-000-36, R-004-4, 7, 8, RB16, RB17: tag, prefetch and acknowledgements as they should be."""
    process = stage.start("yes", "--concurrency", "3", *options)
    process.wait_for_line("consumer.ready", PATIENCE)
    columns = ("queue_name", "consumer_tag", "ack_required", "prefetch_count", "arguments")
    table = rabbit.node.ctl("list_consumers", "--silent", "--no-table-headers", *columns)
    (row,) = [line.split("\t") for line in table.splitlines() if line.startswith(f"{stage.queue}\t")]
    assert row[1:4] == [f"{socket.gethostname()}.{tag}", "true", str(prefetch)]
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
