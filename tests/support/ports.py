"""Ports for servers that a test starts itself."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

LOWEST = 10_000
# From here on, the system gives ports to outgoing connections: a server might find its own taken.
GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses; all held at once, so that no two are the same."""
    highest = int(GIVEN.read_text().split()[0]) if GIVEN.exists() else 32_768
    luck = random.SystemRandom()  # not a test's own: workers with one seed would all want the same
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = luck.randrange(LOWEST, highest)
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found
