"""Settings that --set does not take: those that would break a promise, each with the reason."""

from __future__ import annotations

import pytest

from chronicle.errors import SettingError
from chronicle.transports.kafka.refused import REFUSED, STRONG, refuse

SECRET = "hunter22"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refusal_names_the_setting_and_what_to_do(name: str) -> None:
    """K1, Z9."""
    for written in (name, name.upper(), f" {name} "):
        with pytest.raises(SettingError, match=name.replace(".", r"\.")) as error:
            refuse(written, SECRET)
        assert error.value.remedy
        assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("auto.offset.reset", "--from"),
        ("group.id", "--group"),
        ("bootstrap.servers", "kafka://h1"),
        ("security.protocol", "kafka+ssl://"),
        ("sasl.password", "CHRONICLE_PASSWORD"),
        ("ssl.ca.location", "--tls-ca"),
        ("enable.ssl.certificate.verification", "--tls-ca"),
        ("allow.auto.create.topics", "chronicle declare"),
    ],
)
def test_what_has_an_option_is_said_by_it(name: str, remedy: str) -> None:
    with pytest.raises(SettingError) as error:
        refuse(name, "x")
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    "name",
    [
        "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem", "https.ca.pem", "ssl_key",
        "error_cb", "stats_cb", "on_delivery", "default.topic.config", "default_topic_conf",
        "test.mock.num.brokers", f"{SECRET}.password",
    ],
)  # fmt: skip
def test_secrets_code_and_tests_are_not_taken(name: str) -> None:
    """Z3: a command line is no place for a secret; and its name is not repeated, it may be one."""
    with pytest.raises(SettingError) as error:
        refuse(name, SECRET)
    assert SECRET not in f"{error.value} {error.value.remedy}"


@pytest.mark.parametrize("name", sorted(STRONG))
def test_what_confirms_may_be_said_but_not_weakened(name: str) -> None:
    """K5."""
    for value in STRONG[name]:
        refuse(name, value)
    for value in ("0", "1x", "false", ""):
        with pytest.raises(SettingError, match="must be confirmed by all replicas"):
            refuse(name, value)


@pytest.mark.parametrize(
    "name",
    [
        "max.poll.interval.ms", "session.timeout.ms", "group.protocol", "group.instance.id", "linger.ms",
        "compression.type", "isolation.level", "partitioner", "client.rack", "sasl.mechanism",
        "no.such.thing", "sasl.oauthbearer.assertion.private.key.file",
    ],
)  # fmt: skip
def test_everything_else_is_librdkafkas_affair(name: str) -> None:
    refuse(name, "x")
