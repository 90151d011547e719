"""Syncers that do as the test tells them, for the real command to load.

The file that the variable REHEARSED names holds one line of JSON for every call: what the syncer got.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import chronicle
from chronicle.core.delivery import Delivery


def yes(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    return True


def no(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    return False


def no_then_yes(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    return delivery.redelivered


def well_after_a_round(message: Any, delivery: Delivery) -> bool:
    """Content with a message that has been dead-lettered before."""
    _note(message, delivery)
    return "x-death" in delivery.headers


def nothing(message: Any, delivery: Delivery) -> None:
    _note(message, delivery)


def one(message: Any, delivery: Delivery) -> int:
    _note(message, delivery)
    return 1


def word(message: Any, delivery: Delivery) -> str:
    _note(message, delivery)
    return json.dumps(message)


def raises(message: Any, delivery: Delivery) -> bool:
    """Fails as code does that meets data it did not expect: with the data in the exception."""
    _note(message, delivery)
    raise RuntimeError(f"no room for {message} with {delivery.headers} and {delivery.properties}")


def leaves(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    raise SystemExit(json.dumps(message))


def dead_letters(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    raise chronicle.DeadLetter(f"not wanted: {message}")


def drops(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    raise chronicle.Drop(f"not wanted: {message}")


def retries(message: Any, delivery: Delivery) -> bool:
    """Asks for one more try a moment later, then is content."""
    _note(message, delivery)
    if not delivery.redelivered:
        raise chronicle.Retry(f"later: {message}", after=0.2)
    return True


def _note(message: Any, delivery: Delivery) -> None:
    what = len(message) if isinstance(message, bytes) else message
    call = {"message": what, "redelivered": delivery.redelivered, "at": time.monotonic()}
    line = json.dumps(call | {"headers": repr(delivery.headers)}) + "\n"
    with open(os.environ["REHEARSED"], "ab", buffering=0) as file:
        file.write(line.encode())
