"""What a private Kafka server is told: the lines of its server.properties that are not about one server."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from support.certs import Certs

# Kafka's own are for hundreds of clients on machines of their own, where nothing needs to be quick.
SETTINGS: Final = {
    "num.partitions": "3",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    # A killed server is let in again when its old session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "group.coordinator.threads": "1",
    "share.coordinator.threads": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
    "file.delete.delay.ms": "1000",
    # Every five minutes, it would delete what a test has given a time of long ago.
    "log.retention.check.interval.ms": "86400000",
}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Seat:
    """Which node of which cluster a server is; the controllers of all nodes are its voters."""

    node: int
    cluster: str
    controllers: Sequence[int]  # the port of each node's, in the order of the nodes

    @property
    def voters(self) -> str:
        return ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(self.controllers, 1))

    @property
    def controller(self) -> int:
        return self.controllers[self.node - 1]


def new_cluster() -> str:
    """The name of a cluster, as Kafka spells it; with a dash first, its own tools take it for an option."""
    return base64.urlsafe_b64encode(b"c" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def tls_settings(certs: Certs, *, client_certs: bool, wrong_host: bool) -> dict[str, str]:
    """What shows a certificate to clients, and asks for theirs."""
    shown = certs.wrong_host if wrong_host else certs.server
    both = certs.ca.parent / "shown.pem"
    both.touch(mode=0o600)
    both.write_bytes(shown.key.read_bytes() + shown.cert.read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certs.ca),
        "ssl.client.auth": "required" if client_certs else "none",
    }


def login_settings(users: Mapping[str, str]) -> dict[str, str]:
    """What lets these users log in, each by every mechanism."""
    if not users:
        return {}
    known = " ".join(f"{_quoted(f'user_{name}')}={_quoted(word)}" for name, word in users.items())
    conf = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for listener in ("login", "both"):
        for mechanism in MECHANISMS:
            module = (
                f"{LOGIN}.plain.PlainLoginModule required {known};"
                if mechanism == "PLAIN"
                else f"{LOGIN}.scram.ScramLoginModule required;"
            )
            conf[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return conf


def _quoted(text: str) -> str:
    """As it stands in Java's files of log-ins."""
    return json.dumps(text, ensure_ascii=False)
