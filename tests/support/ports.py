"""Ports for servers that a test starts itself.

Rule: none is given out twice. Between this look at a port and its server, which takes it seconds later, any
      other worker may look as well: each has ports of its own.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path
from typing import Final

LOWEST: Final = 10_000
# From here on, the system gives ports to outgoing connections: a server might find its own taken.
GIVEN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_taken: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses; all held at once, so that no two are the same."""
    luck = random.SystemRandom()  # not a test's own, so that two runs with one seed are no rivals
    mine = _own()
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = luck.choice(mine)
            if port in _taken:
                continue
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _taken.add(port)
                found.append(port)
    return found


def _own() -> range:
    """All that this worker may use; without workers, all there are."""
    highest = int(GIVEN.read_text().split()[0]) if GIVEN.exists() else 32_768
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return range(LOWEST, highest)[number % workers :: workers]
