"""The body of a message, decoded as JSON; whatever the bytes are, the result is a value or `InvalidMessage`.

Rule 1 (Z12): the size is checked first, before anything is parsed.
Rule 2 (X2): strict UTF-8 without a byte order mark; UTF-16 is not JSON here. NaN and Infinity are not
        JSON, nor is half a surrogate pair, nor a number too large for a float, such as 1e999.
Rule 3: of two equal keys the last wins. Whole numbers stay exact, however many digits; beyond the range
        of a float (about 308 digits) they are refused.
Rule 4: nesting is bounded, so that a syncer may recurse over what it gets.
Rule 5: an error gives sizes and positions, never content.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from chronicle.errors import InvalidMessage

# Decoded, JSON takes up to forty times its size: a message of this size up to 160 MiB.
MAX_BODY: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 200

# orjson turns whole numbers beyond 64 bits into floats. They have at least 19 digits, and looking for such
# a run costs a third of the parsing, where a regular expression costs five times the parsing.
_DIGITS_TO_ZERO: Final = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19


def too_large(size: int, max_body: int) -> str:
    """What is wrong with a body of so many bytes; nothing if it is within the limit."""
    return f"the body has {size} bytes, the limit is {max_body}" if size > max_body else ""


def parse(body: bytes, max_body: int, max_depth: int = MAX_DEPTH) -> Any:
    """The JSON value in these bytes; raises only InvalidMessage."""
    if problem := too_large(len(body), max_body):
        raise InvalidMessage(problem)
    try:
        value = orjson.loads(body)
        if _has_more_brackets(body, max_depth) and _deeper(value, max_depth):
            raise InvalidMessage(f"the body is nested deeper than {max_depth} levels")
        if _LONG_NUMBER in body.translate(_DIGITS_TO_ZERO):
            value = json.loads(body)
    except orjson.JSONDecodeError as error:
        if not body.strip():
            raise InvalidMessage("the body is empty, which is not JSON") from None
        raise InvalidMessage(f"the body is not JSON (character {error.pos} of {len(body)} bytes)") from None
    except RecursionError:
        raise InvalidMessage(f"the body is nested deeper than {max_depth} levels") from None
    except MemoryError:
        raise InvalidMessage(f"the body's {len(body)} bytes need more memory than there is") from None
    return value


def glance(body: bytes) -> Any:
    """The JSON value in these bytes, for whoever looks for one thing in it; None if there is none.

    It takes half the time of `parse`, because it checks less: whole numbers beyond 64 bits are about right.
    """
    try:
        return orjson.loads(body) if len(body) <= MAX_BODY else None
    except (orjson.JSONDecodeError, RecursionError, MemoryError):
        return None


def _has_more_brackets(body: bytes, levels: int) -> bool:
    """Whether the body opens more brackets than this, so that a typical message is not walked at all.

    Splitting jumps from one to the next; counting looks at every byte, which can take as long as the parsing.
    """
    most = levels + 1
    return len(body.split(b"{", most)) + len(body.split(b"[", most)) - 2 > levels


def _deeper(value: object, levels: int) -> bool:
    """Whether the value has more levels than these. It goes level by level, so nothing recurses."""
    level = [value]
    for _ in range(levels):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True
