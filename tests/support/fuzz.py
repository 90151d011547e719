"""Random frames and header tables, the same in every run unless CHRONICLE_TEST_FUZZ_SEED names another seed.

A test takes its seed as a parameter, so that its name shows the seed when it fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from struct import pack
from typing import Final

import pytest

from support.amqp import header, heartbeat, method, spec
from support.raw_amqp import long, short

VARIABLE: Final = "CHRONICLE_TEST_FUZZ_SEED"
FIRST: Final = int(os.environ.get(VARIABLE, "1"))

# Letters and lengths of what RabbitMQ reads in a table; the rest has a length of its own.
FIXED: Final = {b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"l": 8, b"f": 4, b"d": 8,
                b"T": 8, b"D": 5, b"V": 0}  # fmt: skip
DEEPEST: Final = 5


def seeds(count: int) -> pytest.MarkDecorator:
    """Run the test with so many seeds."""
    return pytest.mark.parametrize("seed", range(FIRST, FIRST + count), ids=lambda seed: f"seed-{seed}")


def table(luck: Random, depth: int = 0) -> bytes:
    """The entries of a table that a broker accepts, whatever they are."""
    names = (luck.choice([b"x-death", b"x-delivery-count", b"x-chronicle-attempts", luck.randbytes(4)])
             for _ in range(luck.randrange(5)))  # fmt: skip
    return b"".join(short(name) + value(luck, depth) for name in set(names))


def value(luck: Random, depth: int) -> bytes:
    """One value with its type."""
    letter = luck.choice([*FIXED, b"S", b"x", b"F", b"A"] if depth < DEEPEST else [*FIXED, b"S", b"x"])
    if letter in FIXED:
        return letter + luck.randbytes(FIXED[letter])
    if letter == b"F":
        return letter + long(table(luck, depth + 1))
    if letter == b"A":
        return letter + long(b"".join(value(luck, depth + 1) for _ in range(luck.randrange(4))))
    return letter + long(luck.randbytes(luck.choice([0, 3, 300])))


def damaged(luck: Random, data: bytes) -> bytes:
    """The same with a few bytes changed, removed or added."""
    stream = bytearray(data)
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(len(stream) or 1)
        match luck.randrange(3):
            case 0 if stream:
                stream[at] = luck.randrange(256)
            case 1 if stream:
                del stream[at]
            case _:
                stream.insert(at, luck.randrange(256))
    return bytes(stream)


def frames(luck: Random, channel: int, count: int) -> Iterator[bytes]:
    """Frames as a broker sends them and as it never would, mostly well-formed ones in a senseless order."""
    for _ in range(count):
        one = _frame(luck, luck.choice([channel, channel, channel, 0, channel + 1, luck.randrange(65536)]))
        yield damaged(luck, one) if luck.random() < 0.1 else one


def _frame(luck: Random, channel: int) -> bytes:
    size = luck.choice([0, 1, 10, 5_000_000, 1 << 40, 1 << 62])
    match luck.randrange(6):
        case 0:
            return heartbeat()
        case 1:
            return header(channel, size)
        case 2:
            entries = table(luck) if luck.random() < 0.7 else luck.randbytes(30)
            payload = pack(">HHQH", 60, 0, size, 1 << 13) + long(entries)
            return pack(">BHI", 2, channel, len(payload)) + payload + b"\xce"
        case 3:
            body = luck.randbytes(luck.choice([0, 1, 10, 4000]))
            return pack(">BHI", 3, channel, len(body)) + body + b"\xce"
        case 4:
            payload = luck.randbytes(luck.randrange(40))
            return pack(">BHI", luck.choice([1, 1, 4, 9]), channel, len(payload)) + payload + b"\xce"
        case _:
            return method(channel, _method(luck))


def _method(luck: Random) -> object:
    tag = luck.randrange(1000, 1 << 40)  # none that the broker gave out
    return luck.choice([
        spec.Basic.Deliver("c", tag, luck.random() < 0.5, "", "q"),
        spec.Basic.Deliver("c", tag, False, "", "q"),
        spec.Basic.Return(312, "NO_ROUTE", "", "q"),
        spec.Basic.GetOk(tag, False, "", "q", 0),
        spec.Basic.Ack(tag, True),
        spec.Basic.Nack(tag),
        spec.Basic.ConsumeOk("other"),
        spec.Basic.CancelOk("c"),
        spec.Basic.Cancel("c", True),
        spec.Channel.Flow(luck.random() < 0.5),
        spec.Channel.OpenOk(),
        spec.Channel.Close(406, "PRECONDITION_FAILED - " + "x" * luck.randrange(100), 60, 80),
        spec.Connection.Blocked("low on memory"),
        spec.Connection.Unblocked(),
        spec.Queue.DeclareOk("q", 1, 1),
    ])  # fmt: skip
