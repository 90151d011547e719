"""The keys of one queue in Redis. They share the stream's hash slot in a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from chronicle.core.topology import dead_letter_queue
from chronicle.errors import BrokerRefused, SettingError
from chronicle.transports.redis.address import Address, Kind


@dataclass(frozen=True, slots=True)
class Keys:
    """A stream, and what belongs to it."""

    stream: str

    @property
    def dead_letters(self) -> str:
        """A stream."""
        return dead_letter_queue(self.stream)

    @property
    def waiting(self) -> str:
        """A sorted set of entries, by the time at which they go back to the stream."""
        return f"{self.stream}.retry"

    def lease(self, group: str, consumer: str = "") -> str:
        """Who uses a consumer's name: a token that expires."""
        return f"{self.stream}.lease.{group}.{consumer}"


def check_slot(address: Address, *names: str) -> None:
    """SettingError if a cluster would keep the keys of this queue on different nodes (S6)."""
    if address.kind is not Kind.CLUSTER:
        return
    for name in names:
        if not _hash_tag(name):
            plain = name.replace("{", "").replace("}", "") or "orders"
            raise SettingError(
                f"in a cluster, {name!r} and its dead letters may be on different nodes",
                f"put a hash tag into the name, for example {{{plain}}}",
            )


def check_move(address: Address, source: str, target: str) -> None:
    """BrokerRefused if a cluster may keep these on different nodes: no script reaches both."""
    if address.kind is Kind.CLUSTER and _hash_tag(source) != _hash_tag(target):
        raise BrokerRefused(
            f"{address.place}: in a cluster, entries of {source!r} cannot be moved to {target!r} in one step",
            f"give both the same hash tag, {{{_hash_tag(source)}}}; or use chronicle dlq export and publish",
        )


def _hash_tag(name: str) -> str:
    """The part of a key that decides about its slot, if there is one."""
    _, _, rest = name.partition("{")
    tag, closing, _ = rest.partition("}")
    return tag if closing else ""
