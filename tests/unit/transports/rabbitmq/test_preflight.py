"""Whether a dead letter would be kept, decided from what a broker tells (RB8), and the URL that is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.deadletters.prospect import Keeping
from chronicle.errors import SettingError
from chronicle.transports.rabbitmq.address import address_of
from chronicle.transports.rabbitmq.management import management_of
from chronicle.transports.rabbitmq.preflight import matches, prospect_of, topic_matches

SECRET = "hunter22"
BROKER = address_of(f"amqp://me:{SECRET}@broker.example/live")


@dataclass
class Facts:
    """A broker's topology as plain facts."""

    queues: Mapping[str, Mapping[str, Any]]
    exchanges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ways: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    def queue(self, name: str) -> Mapping[str, Any] | None:
        return self.queues.get(name)

    def exchange(self, name: str) -> Mapping[str, Any] | None:
        return self.exchanges.get(name)

    def bindings(self, exchange: str) -> list[dict[str, Any]]:
        return self.ways.get(exchange, [])


def queue(dlx: str | None = None, key: str | None = None, **policy: str) -> dict[str, Any]:
    arguments = {"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": key}
    known = {name.replace("_", "-"): value for name, value in policy.items()}
    return {
        "arguments": {name: value for name, value in arguments.items() if value is not None},
        # An empty Erlang map may come as a list.
        "effective_policy_definition": known or [],
    }


def to(destination: str, key: str = "", kind: str = "queue") -> dict[str, Any]:
    return {"destination": destination, "destination_type": kind, "routing_key": key}


TOPIC, DIRECT, FANOUT, HEADERS = ({"type": kind} for kind in ("topic", "direct", "fanout", "headers"))
OTHER = {**TOPIC, "arguments": {"alternate-exchange": "other"}}
ROWS = {
    "no exchange": (Facts({"q": queue()}), Keeping.VANISHES, "has no dead-letter exchange"),
    "missing exchange": (Facts({"q": queue("dlx", "k")}), Keeping.VANISHES, "'dlx' does not exist"),
    "unbound": (Facts({"q": queue("dlx", "k")}, {"dlx": TOPIC}), Keeping.VANISHES, "no queue is bound"),
    "another key": (
        Facts({"q": queue("dlx", "k")}, {"dlx": DIRECT}, {"dlx": [to("d", "l")]}),
        Keeping.VANISHES,
        "routing key 'k'",
    ),
    "by argument": (
        Facts({"q": queue("dlx", "k")}, {"dlx": DIRECT}, {"dlx": [to("d", "k")]}),
        Keeping.KEPT,
        "'d'",
    ),
    "by policy": (
        Facts({"q": queue(dead_letter_exchange="dlx")}, {"dlx": FANOUT}, {"dlx": [to("d")]}),
        Keeping.KEPT,
        "'d'",
    ),
    "arguments win": (
        Facts({"q": queue("gone", dead_letter_exchange="dlx")}, {"dlx": FANOUT}, {"dlx": [to("d")]}),
        Keeping.VANISHES,
        "'gone' does not exist",
    ),
    "one from each": (
        Facts({"q": queue("dlx", dead_letter_routing_key="k")}, {"dlx": DIRECT}, {"dlx": [to("d", "k")]}),
        Keeping.KEPT,
        "'d'",
    ),
    "default exchange": (Facts({"q": queue("", "d"), "d": queue()}), Keeping.KEPT, "'d'"),
    "default exchange, no queue": (Facts({"q": queue("", "d")}), Keeping.VANISHES, "'d' does not exist"),
    "default exchange, own key": (Facts({"q": queue("")}), Keeping.UNKNOWN, "each message"),
    "own key": (
        Facts({"q": queue("dlx")}, {"dlx": TOPIC}, {"dlx": [to("d", "a.*")]}),
        Keeping.UNKNOWN,
        "each message",
    ),
    "own key, all taken": (
        Facts({"q": queue("dlx")}, {"dlx": TOPIC}, {"dlx": [to("e", "a.*"), to("d", "#")]}),
        Keeping.KEPT,
        "'d'",
    ),
    "headers": (
        Facts({"q": queue("dlx", "k")}, {"dlx": HEADERS}, {"dlx": [to("d")]}),
        Keeping.UNKNOWN,
        "each message",
    ),
    "by way of another exchange": (
        Facts(
            {"q": queue("dlx", "k")},
            {"dlx": FANOUT, "next": FANOUT},
            {"dlx": [to("next", kind="exchange")], "next": [to("d")]},
        ),
        Keeping.KEPT,
        "'d'",
    ),
    "round in a circle": (
        Facts({"q": queue("dlx", "k")}, {"dlx": FANOUT}, {"dlx": [to("dlx", kind="exchange")]}),
        Keeping.VANISHES,
        "only to itself",
    ),
    "alternate exchange": (
        Facts({"q": queue("dlx", "k")}, {"dlx": OTHER, "other": FANOUT}, {"other": [to("d")]}),
        Keeping.KEPT,
        "'d'",
    ),
    "an exchange with a policy": (
        Facts({"q": queue("dlx", "k")}, {"dlx": {**TOPIC, "policy": "p"}}),
        Keeping.UNKNOWN,
        "alternate",
    ),
    "unknown queue": (Facts({}), Keeping.UNKNOWN, "has no queue 'q'"),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_becomes_of_a_dead_letter(row: str) -> None:
    """RB8, F8: what is known to vanish is known by its cause; what cannot be known is not guessed."""
    facts, keeping, said = ROWS[row]
    prospect = prospect_of(facts, "q")
    assert prospect is not None
    assert prospect.keeping is keeping
    assert said in prospect.why


def test_a_policy_that_is_not_told_yet_is_waited_for() -> None:
    """The API learns a queue's policy a few seconds after the queue; arguments that say it all are enough."""
    silent: dict[str, Any] = {"arguments": {}}
    assert prospect_of(Facts({"q": silent}), "q") is None
    full = {"arguments": queue("dlx", "k")["arguments"]}
    found = prospect_of(Facts({"q": full}, {"dlx": FANOUT}, {"dlx": [to("d")]}), "q")
    assert found is not None
    assert found.keeping is Keeping.KEPT


WORDS = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), min_size=1, max_size=5)


@given(WORDS, st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=5))
def test_topics_match_as_a_regular_expression_says(pattern: list[str], words: list[str]) -> None:
    """AMQP's rule, against another way of saying it: `*` is one word, `#` any number of them."""
    parts = {"*": r"[^,]*,", "#": r"(?:[^,]*,)*"}
    expression = "".join(parts.get(part, f"{part},") for part in pattern)
    text = "".join(f"{word}," for word in words)
    assert topic_matches(pattern, words) is bool(re.fullmatch(expression, text))


def test_what_an_unknown_kind_of_exchange_does_is_unknown() -> None:
    assert matches("x-consistent-hash", "1", "k") is None


def test_a_management_url_borrows_the_brokers_user() -> None:
    """User, password and virtual host are the broker's; a URL with its own keeps them."""
    borrowed = management_of("http://localhost", BROKER)
    assert (borrowed.host, borrowed.port, borrowed.tls) == ("localhost", 15672, False)
    assert (borrowed.user, borrowed.password, borrowed.vhost, borrowed.own) == ("me", SECRET, "live", False)
    own = management_of("https://a%40b:p%2Fq@broker.example:443/rabbit/", BROKER)
    assert (own.port, own.tls, own.prefix) == (443, True, "/rabbit")
    assert (own.user, own.password, own.own) == ("a@b", "p/q", True)
    assert SECRET not in repr(borrowed)


@pytest.mark.parametrize(
    ("url", "readable"), [("http://localhost", False), ("http://h", True), ("https://h", False)]
)
def test_a_password_in_the_clear_is_known(url: str, readable: bool) -> None:
    """Z9."""
    assert management_of(url, BROKER).readable is readable


@pytest.mark.parametrize(
    "url",
    [
        f"amqp://u:{SECRET}@h", "localhost:15672", "http://", f"http://u:{SECRET}@h:port", "http://[::1",
        f"http://h/?password={SECRET}", f"http://u:{SECRET}#@h",
    ],
)  # fmt: skip
def test_a_bad_management_url_is_not_repeated(url: str) -> None:
    """Z4."""
    with pytest.raises(SettingError, match="--management-url") as caught:
        management_of(url, BROKER)
    assert SECRET not in f"{caught.value}{caught.value.remedy}"
