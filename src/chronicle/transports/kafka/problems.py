"""What a client's errors mean: which of them an operator must mend, and which pass.

Rule 1: a refusal is what no further try can change: a login, a permission, a topic that is missing. Brokers
        that do not answer are only away: the client goes on trying by itself.
Rule 2 (K7): librdkafka tells of a failed login or TLS handshake in its error callback only; a question then
        ends as a timeout. So whoever asks something listens (`Witness`), and knows why.
Rule 3: of the client's texts only known words are shown: the rest may quote what a broker sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from chronicle.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ChronicleError,
    ClientFailed,
    NoSuchQueue,
    NotAllowed,
    SettingError,
)
from chronicle.transports.kafka.address import BY_PASSWORD, MECHANISM, Address
from chronicle.transports.tls import UNTRUSTED, tls_refused

T = TypeVar("T")

# A listener that expects TLS, or a login, closes other connections without a word.
HUNG_UP: Final = "the broker closes the connection; does that port want TLS (kafka+ssl://) or a login?"
TLS_PORT: Final = "kafka+ssl needs a listener with TLS, often 9093"
DECLARE: Final = "check --queue, or create it: chronicle declare, or --declare"
RIGHTS: Final = "docs/kafka.md lists the permissions that a user needs"
OFFERED: Final = re.compile(r"supported mechanisms: ([-,0-9A-Z]{1,200})")
# librdkafka's description of a setting that is wrong: which one.
NAMED: Final = re.compile(r"[\"`]([a-z0-9._]{1,80})[\"`]")
# All that a fatal error says of its cause is in its text.
SAME_INSTANCE: Final = re.compile(r"same group\.instance\.id|instance ID is still used")
MADE: Final = re.compile(r"\AFailed to create [a-z ]+: ")

# Errors that pass, in words.
PASSING: Final = {
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached",
    KafkaError._TRANSPORT: "the connection failed",
    KafkaError._RESOLVE: "the name of a host is not known",
    KafkaError._TIMED_OUT: "no answer in time",
    KafkaError._MSG_TIMED_OUT: "no confirmation in time",
    KafkaError._TIMED_OUT_QUEUE: "no answer in time",
    KafkaError.REQUEST_TIMED_OUT: "the broker had no answer from the others in time",
    KafkaError._WAIT_COORD: "no broker coordinates the group at the moment",
    KafkaError.COORDINATOR_NOT_AVAILABLE: "no broker coordinates the group at the moment",
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is starting",
    KafkaError.NOT_COORDINATOR: "another broker coordinates the group now",
    KafkaError.NOT_ENOUGH_REPLICAS: "too few replicas are in sync (min.insync.replicas)",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "too few replicas are in sync (min.insync.replicas)",
    KafkaError.LEADER_NOT_AVAILABLE: "a partition has no leader at the moment",
    KafkaError.NOT_LEADER_FOR_PARTITION: "a partition has another leader now",
    KafkaError.KAFKA_STORAGE_ERROR: "the broker cannot write to its disk",
    KafkaError._AUTHENTICATION: "the connection ended while logging in",
    KafkaError._SSL: "the TLS connection failed",
}
NO_RIGHT: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "its transactional id",
}
# Refusals that need no more than a sentence: what is wrong, and the remedy.
PLAIN: Final = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (
        "the other members of the group share out partitions in another way",
        "stop them, set partition.assignment.strategy as they do, or choose another --group",
    ),
    KafkaError.UNSUPPORTED_ASSIGNOR: (
        "the brokers do not know that group.remote.assignor",
        "leave it out: they choose one",
    ),
    KafkaError.INVALID_GROUP_ID: ("the brokers do not accept that group", "choose another --group"),
    KafkaError.GROUP_MAX_SIZE_REACHED: (
        "the group has as many members as the brokers allow (group.max.size)",
        "stop some of them",
    ),
    KafkaError.INVALID_SESSION_TIMEOUT: (
        "the brokers do not accept that session.timeout.ms",
        "use one between their group.min.session.timeout.ms and group.max.session.timeout.ms",
    ),
    KafkaError.FENCED_INSTANCE_ID: (
        "another process uses the same group.instance.id",
        "give each process its own, or none",
    ),
    KafkaError.UNRELEASED_INSTANCE_ID: (
        "another process uses the same group.instance.id, or did until a moment ago",
        "give each process its own, or none",
    ),
    KafkaError.TOPIC_EXCEPTION: ("the brokers do not accept the topic's name", "choose another --queue"),
    KafkaError.UNSUPPORTED_VERSION: (
        "the brokers are too old for that",
        "use Kafka 2.1 or newer; group.protocol=consumer needs 4.0",
    ),
    KafkaError._UNSUPPORTED_FEATURE: (
        "the brokers are too old for that",
        "use Kafka 2.1 or newer; group.protocol=consumer needs 4.0",
    ),
    KafkaError.SECURITY_DISABLED: ("the brokers have no access control", "leave the login out"),
}


class Witness:
    """Listens to a client's complaints: give it to the client as `error_cb`.

    They come while the client is polled. A refusal is kept; of what passes, the newest that says why.
    """

    def __init__(self, address: Address) -> None:
        self.refused: BrokerRefused | None = None
        self.fatal: KafkaError | None = None
        self.down = False  # whether all known brokers were away at once
        self._address = address
        self._why = ""

    def __call__(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = self.fatal or error
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down = True
            return
        self.refused = self.refused or refusal(error, self._address)
        self._why = reason(error)

    def problem(self, error: KafkaError, topic: str = "", group: str = "") -> ChronicleError:
        """What a question's own error means, in the light of what was heard meanwhile."""
        if self.refused is not None and error.code() in PASSING:
            return self.refused
        if error.code() in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            return self.silence()
        return explained(error, self._address, topic=topic, group=group)

    def look(self) -> None:
        """Raise what no further wait can change."""
        if self.refused is not None:
            raise self.refused
        if self.fatal is not None:
            raise explained(self.fatal, self._address)

    def silence(self) -> BrokerUnreachable:
        """There was no answer: why, as far as is known."""
        why = self._why or (HUNG_UP if self.down else PASSING[KafkaError._TIMED_OUT])
        return BrokerUnreachable(f"{self._address.place}: {why}")


def explained(
    error: KafkaError | KafkaException, address: Address, *, topic: str = "", group: str = ""
) -> ChronicleError:
    """The error as something to raise: a refusal, a client that has failed for good, or brokers away."""
    if isinstance(error, KafkaException):
        error = error_in(error)
    if error.code() == KafkaError._FATAL or error.fatal():
        same = SAME_INSTANCE.search(error.str())
        why = PLAIN.get(KafkaError.FENCED_INSTANCE_ID if same else error.code())
        text = why[0] if why else f"the client cannot go on ({error.name()})"
        return ClientFailed(f"{address.place}: {text}")
    return refusal(error, address, topic=topic, group=group) or BrokerUnreachable(
        f"{address.place}: {reason(error)}"
    )


def refusal(error: KafkaError, address: Address, *, topic: str = "", group: str = "") -> BrokerRefused | None:
    """The error as something the operator must change; None when trying again makes sense."""
    where, code, text = address.place, error.code(), error.str()
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return no_topic(address, topic)
    if code in NO_RIGHT:
        named = {KafkaError.TOPIC_AUTHORIZATION_FAILED: topic, KafkaError.GROUP_AUTHORIZATION_FAILED: group}
        name = named.get(code, "")
        return NotAllowed(
            f"{where}: this user may not use {NO_RIGHT[code]}{f' {name!r}' if name else ''}", RIGHTS
        )
    if code in PLAIN:
        problem, remedy = PLAIN[code]
        return BrokerRefused(f"{where}: {problem}", remedy)
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return _login_refused(text, where)
    if code in (KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError.ILLEGAL_SASL_STATE):
        return _login_refused(f"mechanism handshake failed: {text}", where)
    if code in (KafkaError._SSL, KafkaError._TRANSPORT):
        return _tls_refused(text, where)
    return None


def no_topic(address: Address, topic: str) -> NoSuchQueue:
    """The error when there is no such topic, or none that this user may see."""
    named = f"there is no topic {topic!r}" if topic else "there is no such topic"
    return NoSuchQueue(f"{address.place}: {named}", DECLARE)


def _login_refused(text: str, where: str) -> BrokerRefused | None:
    if "handshake failed" in text:
        offered = OFFERED.search(text)
        if offered is not None:
            return BrokerRefused(
                f"{where}: the broker does not know this way to log in",
                f"use one that it has: --set {MECHANISM}={offered[1].split(',')[0]} "
                f"(it has {offered[1].replace(',', ', ')})",
            )
        return BrokerRefused(
            f"{where}: this listener takes no login",
            "check the port, or leave the user out of the URL",
        )
    if "Authentication failed" in text or "invalid credentials" in text:
        return BrokerRefused(
            f"{where}: user name or password was refused",
            f"check the user in the URL, the password in CHRONICLE_PASSWORD, and --set {MECHANISM}=…",
        )
    return None  # the connection ended in the middle of it: a broker that is being restarted


def _tls_refused(text: str, where: str) -> BrokerRefused | None:
    if "PLAINTEXT broker listener" in text:
        text = "WRONG_VERSION_NUMBER"
    if "certificate verify failed" in text:
        return BrokerRefused(f"{where}: a broker's certificate is not trusted", UNTRUSTED)
    return tls_refused(text.upper().replace(" ", "_"), where, TLS_PORT)


def reason(error: KafkaError) -> str:
    """What passes, in a few words."""
    text = error.str()
    for words in ("Connection refused", "No route to host", "Network is unreachable", "Connection reset"):
        if words in text:
            return words.lower()
    if error.code() == KafkaError._TRANSPORT and "Disconnected" in text:
        return "the broker closed the connection"
    return PASSING.get(error.code(), f"the client reported {error.name()}")


def error_in(exception: KafkaException) -> KafkaError:
    """The error that an exception of the client carries."""
    found = exception.args[0] if exception.args else None
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL)


def built(make: Callable[..., T], config: Mapping[str, Any], address: Address, **options: Any) -> T:
    """A client made by `make`; SettingError when librdkafka does not take a setting."""
    try:
        return make(dict(config), **options)
    except KafkaException as exception:
        raise setting_problem(error_in(exception), address) from None
    except (TypeError, ValueError):
        raise SettingError("--set: a setting has the wrong form", "see docs/kafka.md") from None


def setting_problem(error: KafkaError, address: Address) -> SettingError | ClientFailed:
    """What librdkafka says about a setting that it does not take."""
    if error.code() not in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
        return ClientFailed(f"{address.place}: no client can be made ({error.name()})")
    text = " ".join(address.masked(error.str()).split())
    if "No such configuration property" in text:
        named = [name for name in NAMED.findall(text) if name in address.settings]
        return SettingError(
            f"--set: librdkafka has no setting {', '.join(named) or 'of that name'}",
            "its CONFIGURATION.md lists them all",
        )
    if "SASL mechanism" in text:
        return SettingError(
            f"--set: {MECHANISM} is not one that this client has", f"it has {', '.join(BY_PASSWORD)}"
        )
    return SettingError(
        f"--set: {MADE.sub('', text)}", "librdkafka's CONFIGURATION.md says what each setting takes"
    )
