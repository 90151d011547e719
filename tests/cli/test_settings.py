"""The rules between options."""

from __future__ import annotations

import pytest

from chronicle.core.backoff import Backoff
from chronicle.core.pipeline import Schema
from chronicle.core.policy import OnExhausted, Policy
from chronicle.errors import SettingError
from chronicle.settings.run import (
    check_backoff,
    check_exhausted,
    check_where,
    check_work,
    consumer_tag,
)
from chronicle.transports.seam import Tls

SECRET = "hunter22"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gopher://h", "scheme 'gopher' is not supported"),
        ("gopher+ssl://h1,h2", r"scheme 'gopher\+ssl' is not supported"),
        (f"http://u:{SECRET}@h", "not supported"),
        (f"u:{SECRET}@h/x", "not supported|no scheme"),
        ("chronicle.db", "no scheme"),
        ("local:", "names no file"),
        ("amqp:///vhost", "names no host"),
        (f"amqp://u:{SECRET}@/vhost", "names no host"),
        (f"amqp://u:{SECRET}#x@h/", "cannot be read|#"),
        (f"amqp://u:{SECRET}/x@h/", "an @ behind its hosts"),
        (f"amqp://u:{SECRET}@h:port/", "cannot be read"),
        ("amqp://h:99999/", "cannot be read"),
        ("amqp://[::1/", "cannot be read"),
        ("amqp://h/a/b", "virtual host"),
        ("amqps://h/?ssl_options={'verify':0}", "ssl_options is not accepted in a URL"),
        ("amqps://h/?verify=verify_none", "verify is not accepted in a URL"),
        ("amqp://h/?heartbeat=0", "heartbeat takes a whole number of seconds"),
        ("amqp://h/?heartbeat=x", "heartbeat takes a whole number of seconds"),
        ("amqp://h/?prefetch=0", "prefetch takes a whole number of messages"),
        ("amqp://h/?prefetch=-1", "prefetch takes a whole number of messages"),
        ("amqp://h/?prefetch=1.5", "prefetch takes a whole number of messages"),
        ("amqp://h/?prefetch=many", "prefetch takes a whole number of messages"),
        ("amqp://h/?prefetch=true", "prefetch takes a whole number of messages"),
        ("amqp://h/?prefetch=", "prefetch takes a whole number of messages"),
        ("amqp://h/?prefetch=65536", "prefetch takes a whole number of messages"),
        ("amqp://h/?connection_timeout=5", "connection_timeout takes a whole number of milliseconds"),
        (f"amqp://h/?token={SECRET}", "not known"),
        (f"amqp://h/?{SECRET}", "cannot be read"),
    ],
)
def test_bad_urls_are_refused_without_being_repeated(url: str, said: str) -> None:
    """D-9, Z9, Z4: one sentence, and never a piece of the URL that may be a password."""
    with pytest.raises(SettingError, match=said) as caught:
        check_where(url, "q")
    assert caught.value.remedy
    assert SECRET not in f"{caught.value}{caught.value.remedy}{caught.value.__cause__}"


@pytest.mark.parametrize(
    "url", ["local:x.db", "amqp://localhost", "amqps://h/v?heartbeat=20", "AMQP://h/%2F"]
)
def test_good_urls(url: str) -> None:
    assert check_where(url, "q").url == url


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("amqp://u:p@broker.example/", True),
        ("amqps://u:p@broker.example/", False),
        ("amqp://u@broker.example/", False),
        ("amqp://u:p@localhost/", False),
        ("amqp://u:p@127.0.0.9/", False),
        ("amqp://u:p@[::1]/", False),
        ("amqp://u:p@10.0.0.1/", True),
    ],
)
def test_a_password_in_the_clear_is_warned_about(url: str, warned: bool) -> None:
    """Z9: plaintext with credentials to a host that is not this machine."""
    assert bool(check_where(url, "q").warnings) is warned


@pytest.mark.parametrize("queue", ["", "a\nb", "\x1b[31m", "q" * 256])
def test_queue_names(queue: str) -> None:
    """Z10: a name that steers a terminal is refused."""
    with pytest.raises(SettingError, match="--queue"):
        check_where("local:x.db", queue)


@pytest.mark.parametrize(
    ("url", "tls", "said"),
    [
        ("amqps://h/", Tls(key="k"), "--tls-key without --tls-cert"),
        ("amqp://h/", Tls(ca="c"), "no effect on amqp"),
        ("local:x.db", Tls(cert="c"), "no effect on local"),
    ],
)
def test_certificates_without_use(url: str, tls: Tls, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        check_where(url, "q", tls=tls)


def test_set_has_no_effect_on_the_embedded_queue() -> None:
    with pytest.raises(SettingError, match="--set"):
        check_where("local:x.db", "q", extras={"heartbeat": "5"})


def test_set_means_the_same_as_the_urls_arguments() -> None:
    assert check_where("amqp://h/", "q", extras={"heartbeat": "5"}).extras == {"heartbeat": "5"}
    with pytest.raises(SettingError, match="ssl_options"):
        check_where("amqp://h/", "q", extras={"ssl_options": "{}"})


def test_prefetch_is_twice_the_concurrency() -> None:
    """R-004-7, D-8: option, else 2 × concurrency; AMQP has sixteen bits for it."""
    assert check_work("m:f", concurrency=7).prefetch == 14
    assert check_work("m:f", concurrency=7, prefetch=8).prefetch == 8
    assert check_work("m:f", concurrency=60000).prefetch == 65535
    with pytest.raises(SettingError, match="65535"):
        check_work("m:f", prefetch=65536)


def test_the_connectors_prefetch_comes_between() -> None:
    """R-000-36, R-000-47, D-8: the option, else the URL's or --set's, else 2 × concurrency."""
    assert check_where("amqp://h/", "q").prefetch is None
    assert check_where("amqp://h/?prefetch=9", "q").prefetch == 9
    assert check_where("amqp://h/?prefetch=9", "q", extras={"prefetch": "7"}).prefetch == 7
    assert check_work("m:f", concurrency=2, connector_prefetch=9).prefetch == 9
    assert check_work("m:f", concurrency=2, prefetch=5, connector_prefetch=9).prefetch == 5
    with pytest.raises(SettingError, match="prefetch takes a whole number of messages"):
        check_where("amqp://h/", "q", extras={"prefetch": "0"})


def test_prefetch_below_concurrency_is_warned_about() -> None:
    assert check_work("m:f", concurrency=4, connector_prefetch=3).warnings
    assert check_work("m:f", concurrency=4, prefetch=3).warnings
    assert not check_work("m:f", concurrency=4, prefetch=4).warnings


def test_keys_belong_to_proca() -> None:
    """D-20."""
    assert check_work("m:f", require_decryption=True).keys is None  # never pass sealed data on
    with pytest.raises(SettingError, match="--keys has no effect"):
        check_work("m:f", keys="k", schema=Schema.JSON)
    with pytest.raises(SettingError, match="--normalize-events has no effect"):
        check_work("m:f", normalize_events=True, schema=Schema.RAW)


def test_on_exhausted_needs_a_limit() -> None:
    """D-3."""
    with pytest.raises(SettingError, match="--on-exhausted without --max-retries"):
        check_exhausted(Policy(), OnExhausted.DROP)
    check_exhausted(Policy(max_retries=3), OnExhausted.DROP)
    check_exhausted(Policy(), None)


def test_backoff() -> None:
    """D-6: initial, maximum, multiplier; what is not said is as usual."""
    usual = Backoff(0.2, 5.0, 1.5)
    assert check_backoff(usual, None, None, None) is None
    assert check_backoff(usual, 1.0, None, None) == Backoff(1.0, 5.0, 1.5)
    assert check_backoff(usual, 60.0, None, None) == Backoff(60.0, 60.0, 1.5)
    assert check_backoff(usual, None, 10.0, 3.0) == Backoff(0.2, 10.0, 3.0)
    assert check_backoff(usual, None, 0.1, None) == Backoff(0.1, 0.1, 1.5)
    with pytest.raises(SettingError, match="--reconnect-initial is longer"):
        check_backoff(usual, 5.0, 1.0, None)


@pytest.mark.parametrize(
    ("tag", "syncer", "made"),
    [
        ("crm", "my_crm.sync:run", "box.crm"),
        (None, "my_crm:sync", "box.my_crm"),
        (None, "my_crm.jobs.mail:Sync", "box.my_crm"),
        (None, "shop/sync-orders.py:Orders", "box.sync-orders"),
        (None, "sync.py:run", "box.sync"),
        ("", "../sync:run", "box.sync"),
        (None, None, "box.chronicle"),
        (None, "no function", "box.chronicle"),
        (None, "a\nb:f", "box.chronicle"),
    ],
)
def test_the_consumer_tag_is_hostname_and_tag_or_package(
    tag: str | None, syncer: str | None, made: str
) -> None:
    """R-004-8: `<hostname>.<tag or package name>`; a command without a syncer is chronicle itself."""
    assert consumer_tag("box", tag, syncer) == made


def test_settings_do_not_show_secrets() -> None:
    """Z4: settings end up in tracebacks and debug prints."""
    where = check_where(f"amqp://u:{SECRET}@localhost/", "q", extras={"heartbeat": "5"})
    assert SECRET not in repr(where)
    assert SECRET not in repr(check_work("m:f", keys=f'{{"{SECRET}": 1}}'))
