"""The URL of a Redis: one server, sentinels or a cluster, and errors that never repeat a password."""

from __future__ import annotations

import pytest

from chronicle.errors import SettingError
from chronicle.transports.hosts import Host
from chronicle.transports.redis.address import Address, Kind, address_of
from chronicle.transports.redis.options import SCHEMES, SECURE

SECRET = "hunter22"


def test_one_server() -> None:
    address = address_of("redis://me@broker.example:7000/3")
    assert (address.kind, address.hosts) == (Kind.SINGLE, (Host("broker.example", 7000),))
    assert (address.user, address.password, address.db, address.tls) == ("me", "", 3, False)
    assert (address.timeout, address.prefetch) == (5.0, None)
    assert address.place == "broker.example:7000/3"


@pytest.mark.parametrize("url", ["redis://box", "redis://box/", "redis://box:6379/0", "REDIS://box"])
def test_what_a_short_url_means(url: str) -> None:
    address = address_of(url)
    assert address == address_of("redis://box:6379/0")
    assert address.place == "box:6379/0"


def test_sentinels_and_their_service() -> None:
    address = address_of("redis+sentinel://me@s1,s2:26380,[::1]/orders-db/2")
    assert address.kind is Kind.SENTINEL
    assert address.hosts == (Host("s1", 26379), Host("s2", 26380), Host("::1", 26379))
    assert (address.service, address.db) == ("orders-db", 2)
    assert address.place == "s1:26379,s2:26380,[::1]:26379/orders-db/2"
    assert address_of("redis+sentinel://s1/orders%2Fdb").service == "orders/db"


def test_a_cluster_has_several_nodes_and_one_database() -> None:
    address = address_of("rediss+cluster://n1,n2:7001")
    assert (address.kind, address.tls) == (Kind.CLUSTER, True)
    assert address.hosts == (Host("n1", 6379), Host("n2", 7001))
    assert address_of("redis+cluster://n1/0").db == 0
    with pytest.raises(SettingError, match="only database 0"):
        address_of("redis+cluster://n1/1")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_scheme_says_whether_tls_is_used(scheme: str) -> None:
    """S9, Z9."""
    address = address_of(f"{scheme}://box/name" if "sentinel" in scheme else f"{scheme}://box")
    assert address.tls is (scheme in SECURE) is scheme.startswith("rediss")


def test_special_characters_in_a_login_are_percent_encoded() -> None:
    address = address_of("redis://a%40b:p%2Fq%23r%3As@box")
    assert (address.user, address.password) == ("a@b", "p/q#r:s")
    assert address_of(f"redis://:{SECRET}@box").user == ""


@pytest.mark.parametrize(
    ("url", "alone"),
    [
        ("redis://localhost", True),
        ("redis://127.0.0.1:7000", True),
        ("redis://[::1]", True),
        ("redis://box", False),
        ("redis+cluster://localhost,box", False),
    ],
)
def test_whether_the_traffic_stays_on_this_machine(url: str, alone: bool) -> None:
    """Every host counts: one that is elsewhere is enough to see the password (Z9)."""
    assert address_of(url).loopback is alone


@pytest.mark.parametrize(
    "url",
    [
        f"redis://me:{SECRET}#x@box/0",
        f"redis://me:{SECRET}@box:port",
        f"redis://me:{SECRET}@box:70000",
        f"redis://me:{SECRET}@[::1/0",
        f"redis://me:{SECRET}/x@box/0",
        f"redis://me:{SECRET}@",
        f"redis://me:{SECRET}@/0",
        f"redis://me:{SECRET}@one,two",
        f"redis://me:{SECRET}@one,,two",
        f"redis://me:{SECRET}@box?password={SECRET}",
        f"redis://me:{SECRET}@box/zero",
        f"redis://me:{SECRET}@box/-1",
        f"redis://me:{SECRET}@box/0/1",
        f"redis://me:{SECRET}@box/99999",
        f"redis://me:{SECRET}@box/²",
        f"redis+sentinel://me:{SECRET}@box",
        f"redis+sentinel://me:{SECRET}@box/",
        f"redis+sentinel://me:{SECRET}@box/a%0Ab/0",
        f"redis+sentinel://me:{SECRET}@box/service/x",
        f"redis+cluster://me:{SECRET}@box/2",
    ],
)
def test_a_wrong_url_is_explained_without_repeating_it(url: str) -> None:
    """Z3, Z4: a password with an unescaped # or @ can be anywhere, so nothing of the URL is shown."""
    with pytest.raises(SettingError) as error:
        address_of(url)
    assert error.value.remedy
    assert SECRET not in f"{error.value.problem} {error.value.remedy}"
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("redis://one,two", "redis+sentinel://h1,h2/SERVICE/0 or redis+cluster://h1,h2"),
        ("redis+sentinel://one", "with the name the sentinels know the master by"),
        ("redis://box?db=1", "--tls-ca"),
        ("redis://", "CHRONICLE_PASSWORD"),
        ("redis://me:a#b@box", "# is %23"),
    ],
)
def test_the_remedy_says_what_to_write(url: str, remedy: str) -> None:
    with pytest.raises(SettingError) as error:
        address_of(url)
    assert remedy in error.value.remedy


def test_nothing_shows_the_password() -> None:
    address = address_of(f"redis://me:{SECRET}@box")
    assert address.password == SECRET
    for shown in (repr(address), str(address), address.place):
        assert SECRET not in shown


def test_settings() -> None:
    """D-8: the connector's prefetch."""
    address = address_of("redis://box", {"connection_timeout": "1500", "prefetch": "40"})
    assert (address.timeout, address.prefetch) == (1.5, 40)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefetch", "0"),
        ("prefetch", "65536"),
        ("prefetch", "-1"),
        ("prefetch", "1.5"),
        ("prefetch", "٣"),
        ("prefetch", "9" * 5000),
        ("connection_timeout", "99"),
        ("connection_timeout", ""),
    ],
)
def test_a_setting_out_of_bounds(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"^{name} takes a whole number of .* from ") as error:
        address_of("redis://box", {name: value})
    assert error.value.remedy == f"for example {name}=1000"


def test_an_unknown_setting_is_not_repeated() -> None:
    with pytest.raises(SettingError) as error:
        address_of("redis://box", {SECRET: "1"})
    assert SECRET not in str(error.value)
    assert error.value.remedy == "it accepts connection_timeout (milliseconds), prefetch (messages)"


def test_an_address_is_a_value() -> None:
    one: Address = address_of("redis://box/1")
    assert {one: 1}[address_of("redis://box:6379/1")] == 1
