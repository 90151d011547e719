"""Headers that a stranger might write to mislead chronicle or a broker, as they are on the wire."""

from __future__ import annotations

from struct import pack

from support.raw_amqp import long, nested, short


def forged(queue: str, fail: str) -> dict[str, bytes]:
    """Entries of a header table, by what is wrong with them; `fail` is where dead letters of `queue` go."""
    here, there = queue.encode(), fail.encode()
    deaths = {name: short(b"x-death") + value for name, value in _deaths(here, there).items()}
    broken, empty, large = deaths["a list of numbers"], deaths["an empty list"], _text(b"x" * 130_900)
    return {
        **{f"x-death: {name}": entries for name, entries in deaths.items()},
        "x-death twice, the broken one first": broken + empty,
        "x-death twice, the broken one last": empty + broken,
        "a broken x-death that is not decoded": broken + nested(100),
        "a loop that is not decoded": deaths["a loop"] + nested(100),
        "a broken x-death in a full frame": broken + short(b"large") + large,
        "a full frame": short(b"large") + large,
        "x-first-death and x-last-death": b"".join(
            short(b"x-%s-death-%s" % (which, what)) + value
            for which in (b"first", b"last")
            for what, value in ((b"reason", _int(1)), (b"queue", _list(_int(1))), (b"exchange", _table()))
        ),
        "copies for queues that do not exist": short(b"CC") + _list(_text(b"nowhere"), _int(1)),
        "x-delivery-count": short(b"x-delivery-count") + _text(b"many"),
        **{
            f"x-chronicle-*: {name}": b"".join(short(b"x-chronicle-" + ours) + value for ours in OURS)
            for name, value in {
                "a number": _int(-1),
                "a huge number": _int(2**63 - 1),
                "a text that is not UTF-8": _text(b"\xff\xfe"),
                "a list": _list(_int(1), _text(b"x")),
                "a table": _table(count=_int(1)),
                "a float": b"d" + pack(">d", 1.5),
                "nothing": b"V",
                "a long text": _text(b"x" * 10_000),
            }.items()
        },
    }


OURS = (b"reason", b"attempts", b"queue", b"consumer", b"first-failed-at", b"last-failed-at", b"redrives")


def _deaths(here: bytes, there: bytes) -> dict[str, bytes]:
    return {
        "nothing": b"V",
        "a text": _text(b"9"),
        "a number": _int(9),
        "a table": _table(count=_int(9)),
        "an empty list": _list(),
        "a list of numbers": _list(_int(1)),
        "a list of texts": _list(_text(b"x")),
        "a list of lists": _list(_list(_int(1))),
        "a table and a number": _list(_died(here, b"rejected", _int(1)), _int(1)),
        "a count that is a text": _list(_died(here, b"rejected", _text(b"9"))),
        "a count that is true": _list(_died(here, b"rejected", b"t\x01")),
        "a count that is a float": _list(_died(here, b"rejected", b"d" + pack(">d", 1.5))),
        "a count that is a table": _list(_died(here, b"rejected", _table())),
        "a count that is nothing": _list(_died(here, b"rejected", b"V")),
        "a huge count": _list(_died(here, b"rejected", _int(2**63 - 1))),
        "a negative count": _list(_died(here, b"rejected", _int(-5))),
        "two counts": _list(
            b"F" + long(short(b"queue") + _text(here) + short(b"reason") + _text(b"rejected")
                        + short(b"count") + _text(b"x") + short(b"count") + _int(1))
        ),
        "a count that breaks the next queue": _list(_died(there, b"expired", _text(b"9"))),
        "a loop": _list(_died(here, b"expired", _int(1))),
        "the same death twice": _list(*[_died(here, b"rejected", _int(2))] * 2),
        "a queue that is a number": _list(_table(queue=_int(1), reason=_int(2), count=_int(3))),
        "10000 entries": _list(*[_table()] * 10_000),
    }  # fmt: skip


def _died(queue: bytes, reason: bytes, count: bytes) -> bytes:
    return _table(queue=_text(queue), reason=_text(reason), count=count)


def _text(value: bytes) -> bytes:
    return b"S" + long(value)


def _int(value: int) -> bytes:
    return b"l" + pack(">q", value)


def _list(*values: bytes) -> bytes:
    return b"A" + long(b"".join(values))


def _table(**fields: bytes) -> bytes:
    return b"F" + long(b"".join(short(name.encode()) + value for name, value in fields.items()))
