"""Ports for servers that a test starts itself."""

from __future__ import annotations

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all held at once, so that no two are the same."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
