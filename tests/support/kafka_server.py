"""A private Kafka server that a test may stop, freeze, starve or kill.

Rule 1: everything it opens is on loopback, on ports of its own, in a folder of its own.
Rule 2: every wait has a deadline; what does not come up fails with the server's last log lines.
Rule 3: it ends only the processes it started, by their pids.
Rule 4: it does not outlive the process that started it, not even if that is killed: each would take a
        quarter of a gigabyte.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self
from urllib.parse import quote

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from support import kafka_rights as rights
from support.certs import Certs, make_certs
from support.guard import guard
from support.kafka_properties import SETTINGS, Seat, login_settings, new_cluster, tls_settings
from support.ports import free_ports
from support.proxy import Mode, Proxy
from support.topics import Topics

PROJECT: Final = Path(__file__).parents[2]
JARS: Final = PROJECT / ".kafka"
POM: Final = PROJECT / "tests/support/kafka/pom.xml"
START_TIMEOUT: Final = 90.0
STOP_TIMEOUT: Final = 30.0
ANSWER_TIMEOUT: Final = 30.0
# In a short life on few cores, the second compiler and a parallel collector do not pay off.
JAVA: Final = (
    "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    # They print some hundred settings at every start.
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
    "-cp", f"{JARS}/*",
)  # fmt: skip
# The classes of a server, read and checked, as this Java wrote them down (kafka_archive.py). With them it
# starts in half the time; without them, or with those of another Java, as usual.
ARCHIVE: Final = JARS / f"{Path(shutil.which('java') or '/no/bin/java').resolve().parts[-3]}.classes"
SHARED: Final = f"-XX:SharedArchiveFile={ARCHIVE}"
OFFSETS: Final = "__consumer_offsets"
COMPACT: Final = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


def why_not() -> str:
    """Why no server can be started here; empty if one can."""
    if shutil.which("java") is None:
        return "there is no java on PATH"
    try:
        if (JARS / "pom.xml").read_bytes() == POM.read_bytes():
            return ""
    except OSError:
        pass
    return "its jars are not there: run tests/setup.sh brokers"


class KafkaServer:
    """One server with its own data and ports; `start` it, and `close` it at the end.

    With `tls` there is a second port for TLS; it asks for a client certificate with `client_certs`, and
    shows a certificate for another name with `wrong_host`. `users` are names and passwords for a third
    port, and with `tls` a fourth, where everybody logs in, by PLAIN or SCRAM. With `acls` they may do only
    what `allow` says; who comes without a name may do everything. `settings` are further lines of
    server.properties, and win. What comes by `proxied_url` stays behind the `proxy`. With `archive`, its
    classes are written there when it stops.
    """

    # What a failing test in this process may have to do with.
    running_here: ClassVar[list[KafkaServer]] = []

    def __init__(
        self,
        *,
        tls: bool = False,
        client_certs: bool = False,
        wrong_host: bool = False,
        users: Mapping[str, str] | None = None,
        acls: bool = False,
        settings: Mapping[str, str] | None = None,
        seat: Seat | None = None,
        archive: Path | None = None,
    ) -> None:
        if problem := why_not():
            raise RuntimeError(f"Kafka cannot be started: {problem}")
        self.folder = Path(tempfile.mkdtemp(prefix="chronicle-kafka-"))
        self.port, behind, self._tls_port, self._sasl_port, self._both_port, own = free_ports(6)
        self.seat = seat or Seat(1, new_cluster(), [own])
        # Clients go to the address that the server gives them, so the proxy must have its port before that.
        self.proxy = Proxy(f"kafka://127.0.0.1:{behind}")
        self.certs: Certs | None = (
            make_certs(self.folder / "certs") if tls or client_certs or wrong_host else None
        )
        self._client_certs = client_certs
        self._wrong_host = wrong_host
        self.users = dict(users or {})
        self.topics = Topics(self.address, replication=min(3, len(self.seat.controllers)))
        self._server: subprocess.Popen[bytes] | None = None
        self._archives = f"-XX:ArchiveClassesAtExit={archive}" if archive else SHARED
        self._frozen = False
        self._write(behind, acls, dict(settings or {}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The plain port, without a name."""
        return f"kafka://{self.address}"

    @property
    def proxied_url(self) -> str:
        """As `url`, by way of the proxy, also after the first answer."""
        return self.proxy.url_for(self.url)

    @property
    def tls_url(self) -> str:
        """The port for TLS, without a name."""
        if self.certs is None:
            raise RuntimeError("this server was made without tls=True")
        return f"kafka+ssl://localhost:{self._tls_port}"

    def url_as(self, user: str, password: str | None = None) -> str:
        """The port where this user logs in; with the right password, unless told another."""
        return f"kafka://{self._login(user, password)}@127.0.0.1:{self._sasl_port}"

    def tls_url_as(self, user: str, password: str | None = None) -> str:
        """As `url_as`, by TLS."""
        if self.certs is None:
            raise RuntimeError("this server was made without tls=True")
        return f"kafka+ssl://{self._login(user, password)}@localhost:{self._both_port}"

    @property
    def pid(self) -> int:
        if self._server is None:
            raise RuntimeError("the server was never started")
        return self._server.pid

    @property
    def running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it answers, every partition has a leader, groups can be read, and nobody has frozen it."""
        if not self.running or self._frozen:
            return False
        # The port is cheaper to ask than a client, and closed for most of the time.
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        try:
            with self.topics.admin() as admin:
                found = admin.list_topics(timeout=2.0)
                if OFFSETS not in found.topics:
                    # Kafka makes it when the first group asks, which then waits for seconds.
                    rights.done(
                        admin.create_topics([NewTopic(OFFSETS, 1, self.topics.replication, config=COMPACT)])
                    )
            with self.topics.consumer("chronicle.test.first") as consumer:
                consumer.committed([TopicPartition("nothing", 0)], timeout=5.0)
        except KafkaException:
            return False
        return all(part.leader >= 0 for topic in found.topics.values() for part in topic.partitions.values())

    def start(self, timeout: float = START_TIMEOUT) -> Self:
        """Start the server, with the data it had, and return when it is ready for work."""
        self.launch()
        self.await_ready(timeout)
        return self

    def launch(self) -> None:
        """Start the server and do not wait for it: one of several cannot be ready before the others."""
        if self.running:
            raise RuntimeError("the server is running")
        if self not in self.running_here:
            self.running_here.append(self)
        if not (self.folder / "data").exists():
            self._format()
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(
                [*JAVA, self._archives, "kafka.Kafka", self.folder / "server.properties"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        guard(self._server, self.folder)

    def await_ready(self, timeout: float = START_TIMEOUT) -> None:
        deadline = time.monotonic() + timeout
        while not self.is_ready:
            if not self.running:
                raise RuntimeError(f"Kafka ended while starting; its last lines:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                tail = self.log_tail()
                self._end(signal.SIGKILL)
                raise RuntimeError(f"Kafka was not ready after {timeout:g} s; its last lines:\n{tail}")
            time.sleep(0.05)
        rights.write_users(self.topics, self.users)

    def stop(self) -> None:
        """Stop the server in good order (TERM); its data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server (KILL); what it confirmed stays."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the server's clock: connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self._frozen = False

    def restore_network(self) -> None:
        """Let everything pass the proxy again."""
        self.proxy.set(Mode.PASS)
        self.proxy.accept()

    def tidy(self) -> None:
        """Leave it as a test wants to find it: with a sound network, and without topics."""
        self.restore_network()
        self.topics.clear()

    def allow(self, user: str, *operations: str, **named: str) -> None:
        """Let a user do this, for example READ and DESCRIBE, with what is named (rights.allow)."""
        rights.allow(self.topics, user, *operations, **named)

    def forbid(self, user: str) -> None:
        """Take back all that was allowed to a user."""
        rights.forbid(self.topics, user)

    def logs(self) -> list[Path]:
        """The files the server has written to."""
        return [self._log] if self._log.exists() else []

    def log_tail(self, lines: int = 15) -> str:
        text = "".join(file.read_text(errors="replace") for file in self.logs())
        return "\n".join(text.splitlines()[-lines:]) or "(none)"

    def close(self) -> None:
        """End the server and its proxy, and remove its folder."""
        if self in self.running_here:
            self.running_here.remove(self)
        self._end(signal.SIGKILL)
        self.proxy.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "kafka.log"

    def _login(self, user: str, password: str | None) -> str:
        known = self.users[user] if password is None else password
        return f"{quote(user, safe='')}:{quote(known, safe='')}"

    def _format(self) -> None:
        done = subprocess.run(
            [
                *(*JAVA, SHARED, "kafka.tools.StorageTool"),
                *("format", "-t", self.seat.cluster, "-c", "server.properties"),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            raise RuntimeError(f"Kafka ended while starting:\n{done.stderr.strip() or done.stdout.strip()}")

    def _signal(self, how: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(how)

    def _end(self, how: signal.Signals) -> None:
        if not self.running or self._server is None:
            return
        self.thaw()
        self._signal(how)
        try:
            self._server.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._server.wait(STOP_TIMEOUT)
            raise RuntimeError(f"Kafka did not end within {STOP_TIMEOUT:g} s of {how.name}") from None

    def _write(self, behind: int, acls: bool, settings: dict[str, str]) -> None:
        proxy = self.proxy.url_for("kafka://127.0.0.1").rpartition("/")[2]
        # Each listener's protocol, the port it has, and the address that clients are told.
        listeners = {
            "PLAIN": ("PLAINTEXT", self.port, self.address),
            "PROXIED": ("PLAINTEXT", behind, proxy),
        }
        if self.certs is not None:
            listeners["TLS"] = ("SSL", self._tls_port, f"localhost:{self._tls_port}")
        if self.users:
            listeners["LOGIN"] = ("SASL_PLAINTEXT", self._sasl_port, f"127.0.0.1:{self._sasl_port}")
        if self.users and self.certs is not None:
            listeners["BOTH"] = ("SASL_SSL", self._both_port, f"localhost:{self._both_port}")
        own = f"CONTROLLER://127.0.0.1:{self.seat.controller}"
        kinds = {"CONTROLLER": "PLAINTEXT"} | {name: kind for name, (kind, _, _) in listeners.items()}
        copies = str(min(3, len(self.seat.controllers)))
        in_step = "2" if copies == "3" else "1"
        conf = {
            "process.roles": "broker,controller",
            "node.id": str(self.seat.node),
            "controller.quorum.voters": self.seat.voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": ",".join(
                [own, *(f"{name}://127.0.0.1:{port}" for name, (_, port, _) in listeners.items())]
            ),
            "advertised.listeners": ",".join(f"{name}://{told}" for name, (_, _, told) in listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
            "log.dirs": str(self.folder / "data"),
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_step,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_step,
            "min.insync.replicas": in_step,
            **SETTINGS,
        }
        if self.certs is not None:
            conf |= tls_settings(self.certs, client_certs=self._client_certs, wrong_host=self._wrong_host)
        if acls:
            conf["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            conf["super.users"] = "User:ANONYMOUS"
        conf |= login_settings(self.users)
        # A file of properties has the escapes of JSON.
        lines = [f"{key}={json.dumps(value)[1:-1]}\n" for key, value in (conf | settings).items()]
        (self.folder / "server.properties").write_text("".join(lines))
