"""What a Kafka client's errors mean. The texts are librdkafka's, as it wrote them."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from chronicle.errors import BrokerRefused, BrokerUnreachable, ClientFailed, NoSuchQueue, SettingError
from chronicle.transports.kafka.address import address_of, consumer_config, producer_config
from chronicle.transports.kafka.problems import Witness, built, explained, reason, refusal
from chronicle.transports.seam import Tls

SECRET = "hunter22"
ADDRESS = address_of(f"kafka://me:{SECRET}@h1:9092")
SASL = "sasl_plaintext://h1:9092/bootstrap: "
VERIFY = (
    "ssl://h1:9092/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: "
    "broker certificate could not be verified, verify that ssl.ca.location is correctly configured or root "
    "CA certificates are installed (install ca-certificates package) (after 3ms in state SSL_HANDSHAKE)"
)


@pytest.mark.parametrize(
    ("code", "text", "problem", "remedy"),
    [
        (
            KafkaError._AUTHENTICATION,
            SASL
            + "SASL authentication error: Authentication failed: Invalid username or password (after 5ms)",
            "user name or password was refused",
            "CHRONICLE_PASSWORD",
        ),
        (
            KafkaError._AUTHENTICATION,
            SASL + "SASL authentication error: Authentication failed during authentication due to invalid "
            "credentials with SASL mechanism SCRAM-SHA-512",
            "user name or password was refused",
            "sasl.mechanism",
        ),
        (
            KafkaError._AUTHENTICATION,
            SASL
            + "SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's "
            "supported mechanisms: PLAIN,OAUTHBEARER (after 0ms in state AUTH_HANDSHAKE)",
            "does not know this way to log in",
            "--set sasl.mechanism=PLAIN (it has PLAIN, OAUTHBEARER)",
        ),
        (
            KafkaError._AUTHENTICATION,
            SASL + "SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL state: "
            "broker's supported mechanisms:  (after 0ms in state AUTH_HANDSHAKE)",
            "takes no login",
            "leave the user out",
        ),
        (KafkaError._SSL, VERIFY, "certificate is not trusted", "--tls-ca"),
        (KafkaError._TRANSPORT, VERIFY, "certificate is not trusted", "--tls-ca"),
        (
            KafkaError._TRANSPORT,
            "ssl://h1:9092/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by peer: "
            "connecting to a PLAINTEXT broker listener? (after 2ms in state SSL_HANDSHAKE)",
            "there is no TLS on that port",
            "kafka+ssl",
        ),
        (
            KafkaError._TRANSPORT,
            "ssl://h1:9092/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert bad "
            "certificate: SSL alert number 42 (after 1ms in state APIVERSION_QUERY)",
            "refused the TLS connection",
            "--tls-cert",
        ),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "", "may not use the topic 'orders'", "docs/kafka.md"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "", "may not use the consumer group 'crm'", "docs/kafka.md"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "", "may not use the cluster", "docs/kafka.md"),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "", "share out partitions in another way", "--group"),
        (KafkaError.UNSUPPORTED_VERSION, "", "too old", "4.0"),
        (KafkaError.UNRELEASED_INSTANCE_ID, "", "same group.instance.id", "its own"),
    ],
)
def test_what_an_operator_must_mend(code: int, text: str, problem: str, remedy: str) -> None:
    """H2, Z4."""
    error = explained(KafkaError(code, text), ADDRESS, topic="orders", group="crm")
    assert isinstance(error, BrokerRefused)
    assert error.problem.startswith("h1:9092: ")
    assert problem in error.problem
    assert remedy in error.remedy
    assert SECRET not in f"{error} {error.remedy}"


def test_a_missing_topic_is_a_missing_queue() -> None:
    """K7, D-9."""
    for code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        error = explained(KafkaException(KafkaError(code)), ADDRESS, topic="orders")
        assert isinstance(error, NoSuchQueue)
        assert "there is no topic 'orders'" in error.problem
        assert "chronicle declare" in error.remedy


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (KafkaError._TRANSPORT, "h1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused", "refused"),
        (KafkaError._RESOLVE, "Failed to resolve 'h1:9092': Name or service not known", "name of a host"),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", "no broker can be reached"),
        (KafkaError._TIMED_OUT, "", "no answer in time"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "", "min.insync.replicas"),
        (KafkaError._AUTHENTICATION, "SASL authentication error: Disconnected", "while logging in"),
        (KafkaError.UNKNOWN, "whatever", "UNKNOWN"),
    ],
)
def test_what_passes(code: int, text: str, words: str) -> None:
    """K7: brokers that are away are only away, also those that end a login in the middle."""
    error = KafkaError(code, text)
    assert refusal(error, ADDRESS) is None
    assert words in reason(error)
    assert isinstance(explained(error, ADDRESS), BrokerUnreachable)


def test_a_client_that_failed_for_good() -> None:
    """K7, K8."""
    fenced = explained(KafkaError(KafkaError.FENCED_INSTANCE_ID, "x", True), ADDRESS)
    assert type(fenced) is ClientFailed
    assert "same group.instance.id" in str(fenced)
    assert isinstance(explained(KafkaError(KafkaError._FATAL, "x", True), ADDRESS), ClientFailed)


def test_an_exception_without_an_error() -> None:
    assert isinstance(explained(KafkaException(), ADDRESS), BrokerUnreachable)
    assert isinstance(explained(KafkaException("text"), ADDRESS), BrokerUnreachable)


# --- what is heard meanwhile ------------------------------------------------------------------------

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller: Local: Timed out")


def test_a_timeout_has_the_reason_that_was_heard() -> None:
    witness = Witness(ADDRESS)
    witness(KafkaError(KafkaError._TRANSPORT, "Connect to ipv4#10.0.0.1:9092 failed: Connection refused"))
    witness(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert witness.down
    assert str(witness.problem(TIMED_OUT)) == str(witness.silence()) == "h1:9092: connection refused"
    witness.look()


def test_a_refusal_that_was_heard_ends_the_wait() -> None:
    """H2: within seconds, not at the end of all timeouts."""
    witness = Witness(ADDRESS)
    witness(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed: no"))
    with pytest.raises(BrokerRefused, match="user name or password"):
        witness.look()
    assert isinstance(witness.problem(TIMED_OUT), BrokerRefused)
    assert isinstance(witness.problem(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), NoSuchQueue)


def test_a_broker_that_hangs_up_without_a_word() -> None:
    witness = Witness(ADDRESS)
    assert "no answer in time" in str(witness.silence())
    witness(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert "does that port want TLS" in str(witness.problem(TIMED_OUT))


def test_a_fatal_error_that_was_heard() -> None:
    witness = Witness(ADDRESS)
    witness(KafkaError(KafkaError.FENCED_INSTANCE_ID, "x", True))
    with pytest.raises(ClientFailed, match=r"group\.instance\.id"):
        witness.look()


# --- settings that librdkafka does not take ---------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"no.such.thing": "1"}, "librdkafka has no setting no.such.thing"),
        ({"fetch.min.bytes": "x"}, 'Invalid value for configuration property "fetch.min.bytes"'),
        ({"fetch.min.bytes": "-5"}, "value -5 is outside allowed range"),
        (
            {"group.protocol": "consumer", "session.timeout.ms": "6000"},
            "`session.timeout.ms` is not supported",
        ),
    ],
)
def test_librdkafkas_own_complaint(settings: dict[str, str], problem: str) -> None:
    address = address_of(f"kafka://me:{SECRET}@127.0.0.1:9", settings)
    with pytest.raises(SettingError) as error:
        built(Consumer, consumer_config(address, Tls(), "t", "g"), address)
    assert problem in error.value.problem
    assert "CONFIGURATION.md" in error.value.remedy
    assert SECRET not in f"{error.value} {error.value.__context__}" or error.value.__suppress_context__


def test_a_setting_of_the_other_kind_is_no_error() -> None:
    """The same settings make consumers and producers."""
    settings = {"linger.ms": "5", "session.timeout.ms": "6000", "fetch.min.bytes": "1"}
    address = address_of("kafka://127.0.0.1:9", settings)
    said: list[str] = []

    class Ears:
        def log(self, *parts: object) -> None:
            said.append(str(parts))

    producer = built(Producer, producer_config(address, Tls(), "t"), address, logger=Ears())
    producer.poll(0)
    built(Consumer, consumer_config(address, Tls(), "t", "g"), address, logger=Ears()).close()
    assert all("will be ignored" in line for line in said if "CONFWARN" in line)


def test_a_mechanism_that_the_client_does_not_have() -> None:
    address = address_of("kafka://127.0.0.1:9", {"sasl.mechanism": "GSSAPI"})
    with pytest.raises(SettingError, match="not one that this client has"):
        built(Producer, producer_config(address, Tls(), "t"), address)
