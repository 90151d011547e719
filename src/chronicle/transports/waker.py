"""A bell that ends a sleep from another thread or a signal handler."""

from __future__ import annotations

import select
import socket
from contextlib import suppress


class Waker:
    """Sleep with `wait`, end the sleep with `wake`.

    A ring without a sleeper is kept and ends the next sleep at once. Sockets, not a pipe: the descriptor of a
    closed pipe may belong to another file by the time a late thread writes to it.
    """

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)

    def wake(self) -> None:
        """End the present or the next `wait`. Never blocks and never raises."""
        try:
            self._bell.send(b"\0")
        except OSError:
            return  # full: rung often enough already; closed: there is no sleeper any more

    def wait(self, seconds: float) -> bool:
        """Sleep at most this long; whether it rang."""
        poller = select.poll()  # not select(): it refuses descriptors above 1023
        poller.register(self._ear, select.POLLIN)
        if not poller.poll(max(0.0, seconds) * 1000):
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Forget the rings so far."""
        try:
            while self._ear.recv(4096):
                pass
        except OSError:
            return  # nothing left to read

    def fileno(self) -> int:
        """What a poller watches; readable when it rang."""
        return self._ear.fileno()

    def close(self) -> None:
        """Later rings have no effect."""
        self._ear.close()
        self._bell.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # there were no descriptors left for it
            self.close()
