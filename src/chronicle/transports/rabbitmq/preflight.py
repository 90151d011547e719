"""Whether RabbitMQ would keep a dead letter that is left to it, checked before the first message (RB8).

Rule 1: it only looks. It decides by what the API says; what the API does not say is UNKNOWN, never a guess.
Rule 2: an argument of a queue wins over its policy, separately for the exchange and for the routing key.
Rule 3: the answer is VANISHES only when nothing the broker knows could lead the dead letter to a queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from chronicle.core.deadletters.prospect import Keeping, Prospect
from chronicle.core.topology import DEFAULT_EXCHANGE
from chronicle.transports.rabbitmq.address import address_of
from chronicle.transports.rabbitmq.management import PATIENCE, Api, NoAnswer, management_of
from chronicle.transports.seam import Connector
from chronicle.transports.tls import tls_context

EXCHANGE: Final = "x-dead-letter-exchange"
KEY: Final = "x-dead-letter-routing-key"
POLICY_PAUSE: Final = 0.25


class Lookup(Protocol):
    """Something that knows the broker's topology; raises NoAnswer when it cannot say."""

    def queue(self, name: str) -> Mapping[str, Any] | None: ...

    def exchange(self, name: str) -> Mapping[str, Any] | None: ...

    def bindings(self, exchange: str) -> list[dict[str, Any]]: ...


def preflight(
    connector: Connector,
    management_url: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Prospect:
    """Ask the management API what would become of a message that this queue's consumer rejects."""
    management = management_of(management_url, address_of(connector.url, connector.extras))
    # The API takes a queue's policy from its statistics, which are updated every five seconds.
    deadline = clock() + PATIENCE
    api = Api(
        management, tls_context(connector.tls) if management.tls else None, deadline=deadline, clock=clock
    )
    try:
        while True:
            prospect = prospect_of(api, connector.queue)
            if prospect is not None:
                return prospect
            if clock() >= deadline:
                return Prospect(Keeping.UNKNOWN, "the management API does not show the queue's policy")
            sleep(POLICY_PAUSE)
    except NoAnswer as error:
        return Prospect(Keeping.UNKNOWN, f"the management API cannot be queried: {error}")


def prospect_of(lookup: Lookup, name: str) -> Prospect | None:
    """What would become of a dead letter of this queue; None while its policy is not known yet."""
    queue = lookup.queue(name)
    if queue is None:
        return Prospect(Keeping.UNKNOWN, f"the management API has no queue {name!r}")
    arguments = queue.get("arguments") or {}
    policy = queue.get("effective_policy_definition")
    if policy is None and not {EXCHANGE, KEY} <= arguments.keys():
        return None
    exchange = arguments.get(EXCHANGE, (policy or {}).get(EXCHANGE.removeprefix("x-")))
    key = arguments.get(KEY, (policy or {}).get(KEY.removeprefix("x-")))
    if exchange is None:
        return Prospect(Keeping.VANISHES, f"the queue {name!r} has no dead-letter exchange")
    return _Trail(lookup, key).follow(str(exchange))


class _Trail:
    """The route of a dead letter from exchange to exchange; `key` is None when each message keeps its own."""

    def __init__(self, lookup: Lookup, key: str | None) -> None:
        self._lookup = lookup
        self._key = key
        self._seen: set[str] = set()

    def follow(self, name: str) -> Prospect:
        """What becomes of a message that is published to this exchange."""
        if name == DEFAULT_EXCHANGE:
            return self._by_name()
        if name in self._seen:
            return Prospect(Keeping.VANISHES, f"the exchange {name!r} leads only to itself")
        self._seen.add(name)
        exchange = self._lookup.exchange(name)
        if exchange is None:
            return Prospect(Keeping.VANISHES, f"the dead-letter exchange {name!r} does not exist")
        ways = [self._along(str(exchange.get("type")), binding) for binding in self._lookup.bindings(name)]
        return _best([way for way in ways if way is not None]) or self._unrouted(name, exchange)

    def _by_name(self) -> Prospect:
        """The default exchange: the routing key is the name of a queue."""
        if self._key is None:
            return Prospect(Keeping.UNKNOWN, "the routing key of each message names the dead-letter queue")
        if self._lookup.queue(self._key) is None:
            return Prospect(Keeping.VANISHES, f"the dead-letter queue {self._key!r} does not exist")
        return Prospect(Keeping.KEPT, f"in the queue {self._key!r}")

    def _along(self, kind: str, binding: Mapping[str, Any]) -> Prospect | None:
        """What becomes of it along this binding; None when the binding does not match."""
        match matches(kind, str(binding.get("routing_key", "")), self._key):
            case False:
                return None
            case None:
                return Prospect(Keeping.UNKNOWN, "whether a binding matches depends on each message")
        destination = str(binding.get("destination"))
        if binding.get("destination_type") == "exchange":
            return self.follow(destination)
        return Prospect(Keeping.KEPT, f"in the queue {destination!r}")

    def _unrouted(self, name: str, exchange: Mapping[str, Any]) -> Prospect:
        """No binding matches: an alternate exchange may take it."""
        alternate = (exchange.get("arguments") or {}).get("alternate-exchange")
        if alternate is not None:
            return self.follow(str(alternate))
        if exchange.get("policy"):
            return Prospect(Keeping.UNKNOWN, f"a policy may give the exchange {name!r} an alternate exchange")
        under = "" if self._key is None else f" under the routing key {self._key!r}"
        return Prospect(Keeping.VANISHES, f"no queue is bound to the dead-letter exchange {name!r}{under}")


def _best(ways: list[Prospect]) -> Prospect | None:
    """One route to a queue is enough; with a route that cannot be judged the answer is UNKNOWN."""
    for keeping in (Keeping.KEPT, Keeping.UNKNOWN, Keeping.VANISHES):
        for way in ways:
            if way.keeping is keeping:
                return way
    return None


def matches(kind: str, pattern: str, key: str | None) -> bool | None:
    """Whether a binding matches this key; None when that cannot be known in advance."""
    match kind:
        case "fanout":
            return True
        case "direct":
            return None if key is None else pattern == key
        case "topic":
            if pattern == "#":
                return True
            return None if key is None else topic_matches(pattern.split("."), key.split("."))
    return None


def topic_matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """AMQP's rule: `*` is one word, `#` any number of them."""
    # One row of the table at a time: at[i] is whether the pattern so far matches the first i words.
    at = [True] + [False] * len(words)
    for part in pattern:
        if part == "#":
            at = [any(at[: i + 1]) for i in range(len(at))]
        else:
            at = [False, *(at[i] and part in ("*", word) for i, word in enumerate(words))]
    return at[-1]
