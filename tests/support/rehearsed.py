"""Syncers that do as the test tells them, for the real command to load.

The file that the variable REHEARSED names holds one line of JSON for every call: what the syncer got.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import chronicle
from chronicle.core.delivery import Delivery


def yes(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    return True


async def async_yes(message: Any, delivery: Delivery) -> bool:
    return yes(message, delivery)


def no(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    return False


def as_told(message: Any, delivery: Delivery) -> bool:
    """What the message itself asks for."""
    _note(message, delivery)
    return bool(message["ok"])


def no_then_yes(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    return delivery.redelivered


def well_after_a_round(message: Any, delivery: Delivery) -> bool:
    """Content with a message that has been dead-lettered before."""
    _note(message, delivery)
    return "x-death" in delivery.headers


def takes_its_time(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    time.sleep(5)
    return True


def takes_a_second(message: Any, delivery: Delivery) -> bool:
    _note(message, delivery)
    time.sleep(1)
    return True


def slowly_no_then_yes(message: Any, delivery: Delivery) -> bool:
    """Fails once, after long enough to be touched meanwhile."""
    _note(message, delivery)
    time.sleep(0.51)
    return delivery.redelivered


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
    raise RuntimeError(f"{delivery.properties['message_id']}, {delivery.headers}: no room for {message}")


def raises_all(message: Any, delivery: Delivery) -> bool:
    """Fails with all that it got in the exception."""
    _note(message, delivery)
    raise RuntimeError(f"{delivery.properties}, {delivery.headers}, {delivery.origin}: no room for {message}")


def takes_out(message: Any, delivery: Delivery) -> bool:
    """Fails with a piece of the message that it has taken out before."""
    _note(message, delivery)
    contact = message.pop("contact")
    message["mine"] = {"name": contact.pop("firstName"), "self": message}
    raise RuntimeError(f"nobody is called {message['mine']['name']} {contact}")


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


def retries_forever(message: Any, delivery: Delivery) -> bool:
    """Asks for one more try, whatever it gets, after as many seconds as the message says."""
    _note(message, delivery)
    raise chronicle.Retry("not yet", after=message.get("after"))


def third_time(message: Any, delivery: Delivery) -> bool:
    """Fails twice, then is content; counts as the delivery does (D-2)."""
    _note(message, delivery)
    return delivery.attempts >= 3


def in_order(message: Any, delivery: Delivery) -> bool:
    """Takes a moment, and is content after as many tries as the message says; notes both ends."""
    _note(message | {"is": "begun"}, delivery)
    time.sleep(0.003)
    _note(message | {"is": "over"}, delivery)
    return delivery.attempts >= int(message["tries"])


def complains(message: Any, delivery: Delivery) -> bool:
    """Logs what it got, warns of it, and starts a thread that dies of it."""
    _note(message, delivery)
    logging.getLogger("syncer").error("cannot place %s", delivery)
    thread = threading.Thread(target=_die, args=(message,))
    thread.start()
    thread.join()
    return False


def forks(message: Any, delivery: Delivery) -> bool:
    """Forgets to end the process that it forks, which is content at once; fails itself some time later."""
    _note(message, delivery)
    child = os.fork()
    if not child:
        return True
    deadline = time.monotonic() + 3
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.05)
    return False


def forks_and_exits(message: Any, delivery: Delivery) -> bool:
    """Has a child do it, which says by its code that it did."""
    _note(message, delivery)
    child = os.fork()
    if not child:
        sys.exit(0)
    return os.waitpid(child, 0)[1] == 0


async def async_forks(message: Any, delivery: Delivery) -> bool:
    return forks(message, delivery)


def quotes_the_url(message: Any, delivery: Delivery) -> bool:
    """Says the password in every form code has it in: the URL, and the bare word."""
    _note(message, delivery)
    url = os.environ["CHRONICLE_URL"]
    password = unquote(urlsplit(url).password or "")
    logging.getLogger("syncer").warning("quoted %s and %s and %r", url, password, password)
    raise RuntimeError(f"quoted {url} and {password} and {password!r}")


def _die(message: Any) -> None:
    raise RuntimeError(f"no room for {message}")


def _note(message: Any, delivery: Delivery) -> None:
    what = len(message) if isinstance(message, bytes) else message
    call = {"message": what, "redelivered": delivery.redelivered, "attempts": delivery.attempts}
    line = json.dumps(call | {"at": time.monotonic(), "headers": repr(delivery.headers)}) + "\n"
    with open(os.environ["REHEARSED"], "ab", buffering=0) as file:
        file.write(line.encode())
