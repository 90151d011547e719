"""The URL of a Kafka cluster, what becomes of it and of --set, and errors that never repeat a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import SettingError
from chronicle.transports.hosts import Host
from chronicle.transports.kafka.address import (
    Address,
    address_of,
    client_config,
    consumer_config,
    producer_config,
)
from chronicle.transports.seam import Tls
from support.certs import Certs, make_certs

SECRET = "hunter22"
PLAIN = Tls()


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    return make_certs(tmp_path_factory.mktemp("certs"))


def test_brokers_to_begin_with() -> None:
    address = address_of("kafka://me@h1:9093,h2,[::1]")
    assert address.hosts == (Host("h1", 9093), Host("h2", 9092), Host("::1", 9092))
    assert (address.user, address.password, address.tls, address.prefetch) == ("me", "", False, None)
    assert address.place == "h1:9093,h2:9092,[::1]:9092"


@pytest.mark.parametrize("url", ["kafka://box", "kafka://box/", "kafka://box:9092", "KAFKA://box"])
def test_what_a_short_url_means(url: str) -> None:
    assert address_of(url) == address_of("kafka://box:9092")


def test_the_scheme_says_whether_tls_is_used() -> None:
    """Z9."""
    assert address_of("kafka+ssl://box").tls
    assert not address_of("kafka://box").tls


def test_special_characters_in_a_login_are_percent_encoded() -> None:
    address = address_of("kafka://a%40b:p%2Fq%23r%3As@box")
    assert (address.user, address.password) == ("a@b", "p/q#r:s")


@pytest.mark.parametrize(
    ("url", "alone"),
    [
        ("kafka://localhost", True),
        ("kafka://127.0.0.1:7000,[::1]", True),
        ("kafka://box", False),
        ("kafka://localhost,box", False),
    ],
)
def test_whether_the_traffic_stays_on_this_machine(url: str, alone: bool) -> None:
    """Every host counts: one that is elsewhere is enough to see the password (Z9)."""
    assert address_of(url).loopback is alone


WRONG = [
    f"kafka://me:{SECRET}#x@box",
    f"kafka://me:{SECRET}@box:port",
    f"kafka://me:{SECRET}@box:70000",
    f"kafka://me:{SECRET}@[::1",
    f"kafka://me:{SECRET}/x@box",
    f"kafka://me:{SECRET}@",
    f"kafka://me:{SECRET}@/",
    f"kafka://me:{SECRET}@one,,two",
    f"kafka://me:{SECRET}@box?password={SECRET}",
    f"kafka://me:{SECRET}@box/topic",
    f"kafka://me:{SECRET}@bo x",
]


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_explained_without_repeating_it(url: str) -> None:
    """Z3, Z4: a password with an unescaped # or @ can be anywhere, so nothing of the URL is shown."""
    with pytest.raises(SettingError) as error:
        address_of(url)
    assert error.value.remedy
    assert SECRET not in f"{error.value.problem} {error.value.remedy}"
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_a_url_contains_its_secret_is_not_shown(before: str, after: str) -> None:
    """Z4: read or refused, the password is in no text that could be printed."""
    try:
        address = address_of(f"kafka://{before}:{SECRET}@{after}")
        shown = f"{address!r} {address} {address.place}"
    except SettingError as error:
        shown = f"{error.problem} {error.remedy}"
    assert SECRET not in shown


def test_nothing_shows_the_password() -> None:
    address = address_of(f"kafka://me:{SECRET}@box")
    assert address.password == SECRET
    assert SECRET not in f"{address!r} {address} {address.place}"
    assert address.masked(f"failed for {SECRET}!") == "failed for ***!"
    assert address_of("kafka://box").masked("as it is") == "as it is"


# --- what the client is made with -------------------------------------------------------------------


def test_without_a_login() -> None:
    config = client_config(address_of("kafka://h1,h2:9093"), PLAIN, "box.crm")
    assert config["bootstrap.servers"] == "h1:9092,h2:9093"
    assert (config["security.protocol"], config["client.id"]) == ("PLAINTEXT", "box.crm")
    assert not any(name.startswith(("sasl.", "ssl.")) for name in config)


def test_a_user_logs_in_by_plain_unless_told_otherwise() -> None:
    url = f"kafka://me:{SECRET}@box"
    config = client_config(address_of(url), PLAIN, "t")
    assert (config["security.protocol"], config["sasl.mechanism"]) == ("SASL_PLAINTEXT", "PLAIN")
    assert (config["sasl.username"], config["sasl.password"]) == ("me", SECRET)
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        config = client_config(address_of(url, {name: "SCRAM-SHA-512"}), PLAIN, "t")
        assert config["sasl.mechanism"] == "SCRAM-SHA-512"
        assert "sasl.mechanisms" not in config


def test_tls_verifies_certificates_and_names(certs: Certs) -> None:
    """Z9."""
    tls = Tls(str(certs.ca), str(certs.client.cert), str(certs.client.key))
    config = client_config(address_of(f"kafka+ssl://me:{SECRET}@box"), tls, "t")
    assert config["security.protocol"] == "SASL_SSL"
    assert config["ssl.endpoint.identification.algorithm"] == "https"
    assert config["ssl.ca.location"] == str(certs.ca)
    assert config["ssl.certificate.location"] == str(certs.client.cert)
    assert config["ssl.key.location"] == str(certs.client.key)
    assert "enable.ssl.certificate.verification" not in config


def test_a_key_that_others_can_read_is_refused(certs: Certs, tmp_path: Path) -> None:
    """Z8, as for every broker."""
    key = tmp_path / "key.pem"
    key.write_bytes(certs.client.key.read_bytes())
    key.chmod(0o644)
    with pytest.raises(SettingError, match="--tls-key"):
        client_config(address_of("kafka+ssl://box"), Tls(None, str(certs.client.cert), str(key)), "t")
    with pytest.raises(SettingError, match="--tls-ca"):
        client_config(address_of("kafka+ssl://box"), Tls(str(tmp_path / "none.pem")), "t")


def test_a_name_of_a_process_is_plain() -> None:
    assert client_config(address_of("kafka://box"), PLAIN, "büro 7\n")["client.id"] == "b-ro-7-"


def test_a_login_is_complete() -> None:
    with pytest.raises(SettingError, match="no password") as error:
        client_config(address_of("kafka://me@box"), PLAIN, "t")
    assert "CHRONICLE_PASSWORD" in error.value.remedy
    with pytest.raises(SettingError, match=r"sasl\.mechanism needs a user"):
        address_of("kafka://box", {"sasl.mechanism": "SCRAM-SHA-256"})
    with pytest.raises(SettingError, match="does not go with a user"):
        address_of(f"kafka://me:{SECRET}@box", {"sasl.mechanism": "OAUTHBEARER"})


def test_the_promises_are_in_the_configuration() -> None:
    """K1, K5: and no setting changes them."""
    address = address_of("kafka://box", {"linger.ms": "50", "acks": "all"})
    consumer = consumer_config(address, PLAIN, "t", "crm")
    assert consumer["group.id"] == "crm"
    assert consumer["enable.auto.commit"] is consumer["enable.auto.offset.store"] is False
    assert (consumer["auto.offset.reset"], consumer["allow.auto.create.topics"]) == ("earliest", False)
    assert consumer["partition.assignment.strategy"] == "cooperative-sticky"
    producer = producer_config(address, PLAIN, "t")
    assert (producer["acks"], producer["enable.idempotence"]) == ("all", True)
    assert producer["allow.auto.create.topics"] is False
    assert producer["linger.ms"] == "50"


def test_the_newer_group_protocol_takes_no_strategy() -> None:
    """K8: librdkafka refuses one."""
    address = address_of("kafka://box", {"group.protocol": "consumer"})
    assert "partition.assignment.strategy" not in consumer_config(address, PLAIN, "t", "g")
    address = address_of("kafka://box", {"partition.assignment.strategy": "range"})
    assert consumer_config(address, PLAIN, "t", "g")["partition.assignment.strategy"] == "range"


def test_fetching_rests_only_as_long_as_what_is_there_lasts() -> None:
    """In the client's usual second, a fast consumer would stand still. Both can be set."""
    consumer = consumer_config(address_of("kafka://box"), PLAIN, "t", "g")
    assert consumer["fetch.queue.backoff.ms"] <= 50
    assert consumer["queued.max.messages.kbytes"] == 16 * 1024
    chosen = {"fetch.queue.backoff.ms": "500", "queued.max.messages.kbytes": "1024"}
    assert chosen.items() <= consumer_config(address_of("kafka://box", chosen), PLAIN, "t", "g").items()


# --- settings ---------------------------------------------------------------------------------------


def test_prefetch_is_a_setting() -> None:
    """D-8: the connector's prefetch."""
    address = address_of("kafka://box", {"prefetch": "40", "fetch.min.bytes": "1"})
    assert (address.prefetch, address.settings) == (40, {"fetch.min.bytes": "1"})


@pytest.mark.parametrize("value", ["0", "65536", "-1", "1.5", "٣", "", "9" * 5000])
def test_a_prefetch_out_of_bounds(value: str) -> None:
    with pytest.raises(SettingError, match=r"^prefetch takes a whole number of messages from 1 to 65535"):
        address_of("kafka://box", {"prefetch": value})


def test_an_address_is_a_value() -> None:
    one: Address = address_of("kafka://box")
    assert {one: 1}[address_of("kafka://box:9092")] == 1


@pytest.mark.parametrize(
    ("chosen", "heartbeat"),
    [({}, 3000), ({"session.timeout.ms": "6000"}, 2000), ({"session.timeout.ms": "60000"}, 3000),
     ({"session.timeout.ms": "soon"}, 3000)],
)  # fmt: skip
def test_a_short_session_has_three_heartbeats(chosen: dict[str, str], heartbeat: int) -> None:
    """Otherwise a member that is well counts as dead."""
    config = consumer_config(address_of("kafka://here", chosen), PLAIN, "t", "g")
    assert config["heartbeat.interval.ms"] == heartbeat


def test_a_heartbeat_that_comes_after_the_session_is_refused() -> None:
    chosen = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "3000"}
    with pytest.raises(SettingError, match="not shorter than session"):
        address_of("kafka://here", chosen)


def test_a_heartbeat_of_ones_own_stays() -> None:
    chosen = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "2000"}
    assert (
        consumer_config(address_of("kafka://here", chosen), PLAIN, "t", "g")["heartbeat.interval.ms"]
        == "2000"
    )
