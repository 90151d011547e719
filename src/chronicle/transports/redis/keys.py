"""The keys of one queue in Redis. They share the stream's hash slot in a cluster."""

from __future__ import annotations

from typing import Final

from chronicle.core.frozen import frozen
from chronicle.core.queues import dead_letter_queue
from chronicle.errors import SettingError
from chronicle.transports.redis.address import Address, Kind

USUAL_GROUP: Final = "chronicle"


@frozen
class Keys:
    """A stream, and what belongs to it and to one of its groups."""

    stream: str
    group: str = USUAL_GROUP

    @property
    def dead_letters(self) -> str:
        """A stream."""
        return dead_letter_queue(self.stream)

    @property
    def waiting(self) -> str:
        """A sorted set of entries of this group, by the time at which they go back to the stream."""
        name = f"{self.stream}.retry"
        return name if self.group == USUAL_GROUP else f"{name}.{self.group}"

    def lease(self, consumer: str = "") -> str:
        """Who uses a consumer's name in the group: a token that expires."""
        return f"{self.stream}.lease.{self.group}.{consumer}"


def check_slot(address: Address, *names: str) -> None:
    """SettingError if a cluster would keep the keys of this queue on different nodes (S6)."""
    if address.kind is not Kind.CLUSTER:
        return
    for name in names:
        tag = _hash_tag(name)
        if not tag:
            plain = name.replace("{", "").replace("}", "") or "orders"
            raise SettingError(
                f"in a cluster, {name!r} and its dead letters may be on different nodes",
                f"put a hash tag into the name, for example {{{plain}}}",
            )
        if tag != _hash_tag(names[0]):
            raise SettingError(
                f"in a cluster, {names[0]!r} and {name!r} may be on different nodes",
                f"put the same hash tag into both names: {{{_hash_tag(names[0])}}}",
            )


def _hash_tag(name: str) -> str:
    _, _, rest = name.partition("{")
    tag, closing, _ = rest.partition("}")
    return tag if closing else ""
