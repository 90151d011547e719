"""Whether RabbitMQ can dead-letter a message without harm, judged by the x-death it would find.

A producer can write this header, and RabbitMQ up to 3.13 continues what it finds (measured with 3.10). A list
with anything but tables in it crashes a classic queue, and from a quorum queue the message is gone. A count
that is no whole number does the same to the queue it names, or makes a letter that nobody can ever receive. A
few thousand entries keep the queue busy for half a minute. So only what a broker writes itself is left to it.

Rule: the bytes are judged and not what `decode` makes of them. Of two headers of one name the broker reads
the first, where a decoded table has the last; and headers of which one cannot be read are empty when decoded.
"""

from __future__ import annotations

from typing import Final

from chronicle.transports.rabbitmq.codec.decode import Unreadable, fields_of, properties_of, values_of

NAME: Final = b"x-death"
MOST: Final = 100  # entries; a broker writes one per queue and reason
_TABLE: Final = ord("F")
_LIST: Final = ord("A")
_WHOLE: Final = frozenset(b"bBsuIilLTV")  # types of a count that the broker can count on from


def can_be_dead_lettered(envelope: bytes) -> bool:
    """Whether the broker itself may move a message with this content header."""
    try:
        headers = properties_of(envelope).get("headers", b"")[4:]
        found = [field for name, field in fields_of(headers) if name == NAME]
        return not found or (len(found) == 1 and _is_sound(found[0][1 + len(NAME) :]))
    except Unreadable:
        return False


def _is_sound(value: bytes) -> bool:
    if value[0] != _LIST:
        return True  # the broker begins a new list
    entries = values_of(value[5:], MOST)
    return entries is not None and all(map(_is_a_death, entries))


def _is_a_death(value: bytes) -> bool:
    if value[0] != _TABLE:
        return False
    fields = fields_of(value[5:])
    names = {name for name, _ in fields}
    counts = [field[1 + len(name)] for name, field in fields if name == b"count"]
    return len(names) == len(fields) and all(letter in _WHOLE for letter in counts)
