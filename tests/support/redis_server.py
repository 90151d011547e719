"""A private Redis server that a test may stop, freeze, starve or kill.

Rule 1: everything it opens is on loopback, on ports of its own, in a folder of its own.
Rule 2: every wait has a deadline; what does not come up fails with the server's last log lines.
Rule 3: it ends only the processes it started, by their pids.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from support.certs import Certs, make_certs
from support.guard import guard
from support.ports import free_ports
from support.streams import Streams

START_TIMEOUT: Final = 20.0
STOP_TIMEOUT: Final = 20.0


class RedisServer:
    """One server with its own data and ports; `start` it, and `close` it at the end.

    With `durable` every write is on disk before it is answered; without, a restart finds nothing. With
    `tls` there is a second port for TLS; it asks for a client certificate with `client_certs`, and shows a
    certificate for another name with `wrong_host`. `users` are further names with their ACL rules;
    `password` is that of the default user. `settings` are further lines of redis.conf, and win.
    """

    # What a failing test in this process may have to do with.
    running_here: ClassVar[list[RedisServer]] = []

    def __init__(
        self,
        *,
        durable: bool = False,
        tls: bool = False,
        client_certs: bool = False,
        wrong_host: bool = False,
        password: str = "",
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        sentinel: Sequence[str] = (),
    ) -> None:
        if shutil.which("redis-server") is None:
            raise RuntimeError("Redis is not installed: there is no redis-server on PATH")
        self.folder = Path(tempfile.mkdtemp(prefix="chronicle-redis-"))
        self.port, self._tls_port, self.bus_port = free_ports(3)
        self.certs: Certs | None = (
            make_certs(self.folder / "certs") if tls or client_certs or wrong_host else None
        )
        self.password = password
        self._client_certs = client_certs
        self._wrong_host = wrong_host
        self._server: subprocess.Popen[bytes] | None = None
        self._is_sentinel = bool(sentinel)
        self.streams = Streams(self.client)
        self._write(durable, users or {}, dict(settings or {}), sentinel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The plain port, as the default user."""
        return self.url_as("default", self.password) if self.password else f"redis://{self.address}/0"

    @property
    def tls_url(self) -> str:
        if self.certs is None:
            raise RuntimeError("this server was made without tls=True")
        user = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"rediss://{user}localhost:{self._tls_port}/0"

    def url_as(self, user: str, password: str) -> str:
        """The plain port, as this user."""
        return f"redis://{quote(user, safe='')}:{quote(password, safe='')}@{self.address}/0"

    @property
    def pid(self) -> int:
        if self._server is None:
            raise RuntimeError("the server was never started")
        return self._server.pid

    @property
    def running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def client(self, *, timeout: float = 10.0) -> Redis:
        """A client that answers in bytes, sees every lost connection, and repeats nothing by itself."""
        return Redis(
            "127.0.0.1",
            self.port,
            password=self.password or None,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )

    def start(self, timeout: float = START_TIMEOUT) -> Self:
        """Start the server, with the data it had, and return when it is ready for work."""
        if self.running:
            raise RuntimeError("the server is running")
        deadline = time.monotonic() + timeout
        if self not in self.running_here:
            self.running_here.append(self)
        role = ["--sentinel"] if self._is_sentinel else []
        with self._log.open("ab") as log:
            server = self._server = subprocess.Popen(
                ["redis-server", self.folder / "redis.conf", *role],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        guard(server, self.folder)
        while not self._ready():
            if server.poll() is not None:
                raise RuntimeError(f"Redis ended while starting; its last lines:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                tail = self.log_tail()
                self._end(signal.SIGKILL)
                raise RuntimeError(f"Redis was not ready after {timeout:g} s; its last lines:\n{tail}")
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """Stop the server in good order (TERM); what is durable stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server (KILL); what is durable stays."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the server's clock: connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def configure(self, **settings: str) -> None:
        """Change settings of the running server, for example maxmemory; underscores are hyphens."""
        with self.client() as client:
            for name, value in settings.items():
                client.config_set(name.replace("_", "-"), value)

    def disconnect_everybody(self) -> int:
        """End every client's connection but the one that asks; how many there were."""
        with self.client() as client:
            return int(client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))

    def logs(self) -> list[Path]:
        """The files the server has written to."""
        return [self._log] if self._log.exists() else []

    def log_tail(self, lines: int = 15) -> str:
        text = "".join(file.read_text(errors="replace") for file in self.logs())
        return "\n".join(text.splitlines()[-lines:]) or "(none)"

    def close(self) -> None:
        """End the server and remove its folder."""
        if self in self.running_here:
            self.running_here.remove(self)
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "redis.log"

    def _ready(self) -> bool:
        # The port is cheaper to ask than a client, and closed for most of the time.
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        try:
            with self.client(timeout=1.0) as client:
                return bool(client.ping())  # refused as long as it is loading its data
        except RedisError:
            return False

    def _signal(self, how: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(how)

    def _end(self, how: signal.Signals) -> None:
        if not self.running or self._server is None:
            return
        self.thaw()
        self._signal(how)
        try:
            self._server.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._server.wait(STOP_TIMEOUT)
            raise RuntimeError(f"Redis did not end within {STOP_TIMEOUT:g} s of {how.name}") from None

    def _write(
        self, durable: bool, users: Mapping[str, str], settings: dict[str, str], sentinel: Sequence[str]
    ) -> None:
        conf = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "daemonize": "no",
        }
        if settings.get("cluster-enabled") == "yes":
            # The usual one, 10000 above the port, may be beyond the last port there is.
            conf["cluster-port"] = str(self.bus_port)
        if not sentinel:
            conf |= {
                "save": '""',
                "appendonly": "yes" if durable else "no",
                "appendfsync": "always" if durable else "no",
                "enable-debug-command": "local",
                "repl-diskless-sync-delay": "0",  # a replica need not wait five seconds for another one
            }
        if self.password:
            conf["requirepass"] = json.dumps(self.password)  # quoted as Redis does it
        if self.certs is not None:
            shown = self.certs.wrong_host if self._wrong_host else self.certs.server
            conf |= {
                "tls-port": str(self._tls_port),
                "tls-ca-cert-file": str(self.certs.ca),
                "tls-cert-file": str(shown.cert),
                "tls-key-file": str(shown.key),
                "tls-auth-clients": "yes" if self._client_certs else "no",
            }
        lines = [f"{key} {value}\n" for key, value in (conf | settings).items()]
        lines += [f"user {name} {rules}\n" for name, rules in users.items()]
        lines += [f"{line}\n" for line in sentinel]
        (self.folder / "redis.conf").write_text("".join(lines))
