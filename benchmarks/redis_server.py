"""A private Redis for the benchmark: on loopback, on a port and in a folder of its own, nothing kept."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from redis import Redis
from redis.exceptions import ConnectionError as Unreachable

from support.rabbit import free_ports

STARTING: Final = 10.0  # seconds


class RedisServer:
    """One server, until this ends."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("Redis is not installed: there is no redis-server on the path")
        self.folder = Path(tempfile.mkdtemp(prefix="chronicle-bench-redis-"))
        (port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{port}/0"
        self._client = Redis.from_url(self.url)
        self._ask: Callable[..., Any] = self._client.execute_command
        log = self.folder / "redis.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *(program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                    *("--save", "", "--appendonly", "no", "--daemonize", "no"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._await_start(log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *words: str | bytes | int) -> Any:
        """What Redis answers."""
        return self._ask(*words)

    def _await_start(self, log: Path) -> None:
        deadline = time.monotonic() + STARTING
        while True:
            try:
                self.ask("PING")
                return
            except Unreachable:
                if self._process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                last = " / ".join(log.read_text(errors="replace").splitlines()[-3:])
                self.__exit__()
                raise RuntimeError(f"Redis did not start; its last lines: {last}") from None
