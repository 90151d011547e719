"""The HTTP server that the `http` handlers call, in a process of its own (consumers/server.c).

It is not in the consumer's process and does next to nothing, so it is not what limits anybody; what CPU it
uses for a request stands in the results.
"""

from __future__ import annotations

import os
import select
import subprocess
import urllib.request
from typing import Final, Self

from benchmarks.installing import Http
from benchmarks.proc import usage

STARTING: Final = 10.0  # seconds
ANSWERING: Final = 10.0


class Server:
    """A server that answers after so many seconds, until this ends."""

    def __init__(self, http: Http, answer: float) -> None:
        self.clients = http.clients
        self._process = subprocess.Popen(
            [str(http.server)],
            env={**os.environ, "BENCH_ANSWER": str(answer)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.url = f"http://127.0.0.1:{self._port()}/"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def posts(self) -> int:
        """How many POSTs have come so far."""
        with urllib.request.urlopen(self.url, timeout=ANSWERING) as response:
            return int(response.read())

    def cpu(self) -> float:
        """CPU seconds used so far."""
        return usage(self._process.pid).cpu

    def _port(self) -> int:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], STARTING)[0]:
            self._process.kill()
            raise TimeoutError(f"the HTTP server did not start within {STARTING:g} s")
        return int(self._process.stdout.readline())
