"""Whether RabbitMQ can dead-letter a message without harm, judged by the x-death it would find.

A producer can write this header, and RabbitMQ up to 3.13 continues what it finds (measured with 3.10). A list
with anything but tables in it crashes a classic queue, and from a quorum queue the message is gone. A count
that is no whole number does the same to the queue it names, or makes a letter that nobody can ever receive. A
few thousand entries keep the queue busy for half a minute. And one entry that says the message left this very
queue in another way than by rejection makes the broker delete it where its way leads back here (RB12).
So only what a broker writes itself is left to it.

Rule: the bytes are judged and not what `decode` makes of them. Of two headers of one name the broker reads
the first, where a decoded table has the last; and headers of which one cannot be read are empty when decoded.
"""

from __future__ import annotations

from typing import Final

from chronicle.transports.rabbitmq.codec.decode import Unreadable, fields_of, properties_of, values_of
from chronicle.transports.rabbitmq.codec.encode import encode_value

NAME: Final = b"x-death"
MOST: Final = 100  # entries; a broker writes one per queue and reason
_TABLE: Final = ord("F")
_LIST: Final = ord("A")
_WHOLE: Final = frozenset(b"bBsuIilLTV")  # types of a count that the broker can count on from
_REJECTED: Final = encode_value("rejected")


def can_be_dead_lettered(envelope: bytes, queue: str) -> bool:
    """Whether the broker itself may move a message with this content header when `queue` rejects it."""
    try:
        headers = properties_of(envelope).get("headers", b"")[4:]
        found = [field for name, field in fields_of(headers) if name == NAME]
        return not found or (len(found) == 1 and _is_sound(found[0][1 + len(NAME) :], queue))
    except Unreadable:
        return False


def _is_sound(value: bytes, queue: str) -> bool:
    if value[0] != _LIST:
        return True  # the broker begins a new list
    entries = values_of(value[5:], MOST)
    here = encode_value(queue)
    return entries is not None and all(_is_a_death(entry, here) for entry in entries)


def _is_a_death(entry: bytes, here: bytes) -> bool:
    if entry[0] != _TABLE:
        return False
    fields = fields_of(entry[5:])
    facts = {name: field[1 + len(name) :] for name, field in fields}
    leads_back = facts.get(b"queue") == here and facts.get(b"reason") != _REJECTED
    return len(facts) == len(fields) and facts.get(b"count", b"V")[0] in _WHOLE and not leads_back
