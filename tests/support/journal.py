"""A syncer that writes down what it does, for the checker; what a message asks of it stands in the message.

    id        the message's number, in every line
    seconds   how long to take
    gate      a file to wait for; it is looked for until it is there
    answer    what to return or raise: true (default), false, one, none, text, raise, exit

`start ID PID TIME` is written before anything else, `end ID PID TIME` just before True is returned; the time
is that of a clock that all processes share.
Every line is one write to a file opened for appending: it outlives a kill, and lines of many threads and
processes never mix.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final

from chronicle.core.delivery import Delivery

JOURNAL: Final = "JOURNAL"  # the variable that names the file
LOOK: Final = 0.02


def sync(message: dict[str, Any]) -> object:
    """A plain syncer."""
    _write("start", message)
    time.sleep(message.get("seconds", 0))
    while not _open(message):
        time.sleep(LOOK)
    return _answer(message)


async def tasked(message: dict[str, Any]) -> object:
    """An async syncer that behaves."""
    _write("start", message)
    await asyncio.sleep(message.get("seconds", 0))
    while not _open(message):
        await asyncio.sleep(LOOK)
    return _answer(message)


async def blocking(message: dict[str, Any]) -> object:
    """An async syncer that blocks its event loop."""
    return sync(message)


def patient(message: dict[str, Any], delivery: Delivery) -> bool:
    """A plain syncer that answers False until the try that the message asks for as `tries`."""
    _write("start", message)
    time.sleep(message.get("seconds", 0))
    if delivery.attempts < message["tries"]:
        return False
    _write("end", message)
    return True


def _open(message: dict[str, Any]) -> bool:
    return "gate" not in message or os.path.exists(message["gate"])


def _answer(message: dict[str, Any]) -> object:
    answer = message.get("answer", "true")
    if answer == "raise":
        raise RuntimeError("the message asked for it")
    if answer == "exit":
        raise SystemExit(0)
    if answer == "true":
        _write("end", message)
    return {"true": True, "false": False, "one": 1, "none": None, "text": "true"}[answer]


def _write(what: str, message: dict[str, Any]) -> None:
    line = f"{what} {message['id']} {os.getpid()} {time.monotonic():.6f}"
    fd = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)
