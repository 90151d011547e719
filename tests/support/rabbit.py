"""A private RabbitMQ node that a test may stop, freeze or kill.

Rule 1: everything it opens is on loopback, on ports of its own, in a folder of its own.
Rule 2: every wait has a deadline; what does not come up fails with the node's last log lines.
Rule 3: it ends only the processes it started, by their pids.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from support.certs import Certs, make_certs
from support.guard import guard
from support.management import ManagementApi
from support.ports import free_ports
from support.queues import Queues
from support.waiting import wait_for

# The wrapper in /usr/sbin changes user and folder; the script behind it does not.
BIN: Final = Path("/usr/lib/rabbitmq/bin")
START_TIMEOUT: Final = 90.0
STOP_TIMEOUT: Final = 30.0
# The distribution listens on every interface unless told, and idle schedulers spin.
LOOPBACK: Final = "-kernel inet_dist_use_interface {127,0,0,1}"
QUIET: Final = "+sbwt none +sbwtdcpu none +sbwtdio none"
# The figures of a quorum queue are as old as its tick, 5 s unless told.
ADVANCED: Final = "[{rabbit, [{quorum_tick_interval, 100}]}].\n"
# Until a quorum queue has its leader back it claims to be empty, which a test would take for a loss. A call
# that comes before the election may never be answered, so each is short and the question is asked again.
ALL_HAVE_LEADERS: Final = """
    lists:all(fun(Queue) -> element(1, ra:members(amqqueue:get_pid(Queue), 500)) =:= ok end,
              [Queue || Queue <- rabbit_amqqueue:list(), amqqueue:get_type(Queue) =:= rabbit_quorum_queue])
"""
# RabbitMQ keeps a new quorum queue's election papers in memory for up to 3 s; killed before, that queue
# never finds a leader again. A new classic queue may be forgotten altogether. This writes them down.
WRITE_PAPERS: Final = "mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()]"
COUNTS: Final = """
    {{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)),
    [{{_, Ready}}, {{_, Unacknowledged}}] =
        rabbit_amqqueue:info(Queue, [messages_ready, messages_unacknowledged]),
    {{Ready, Unacknowledged}}
"""
# From 4.0 on nothing here needs a transaction of Mnesia's, and before it nothing is changed without one.
SET_STATE: Final = """
    Set = fun() -> rabbit_amqqueue:update(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>),
                                          fun(Queue) -> amqqueue:set_state(Queue, {state}) end) end,
    case erlang:function_exported(rabbit_db_queue, update, 2) of
        true -> Set();
        false -> rabbit_misc:execute_mnesia_transaction(Set)
    end,
    done
"""
DELETE_QUEUES: Final = """
    [rabbit_amqqueue:delete(Queue, false, false, <<"tests">>) || Queue <- rabbit_amqqueue:list()]
"""


class RabbitNode:
    """One node with its own data, ports and epmd; `start` it, and `close` it at the end.

    `settings` are further lines of rabbitmq.conf. With `tls` there is a second listener that demands a
    client certificate.
    """

    # What a failing test in this process may have to do with.
    running_here: ClassVar[list[RabbitNode]] = []

    def __init__(self, *, tls: bool = False, settings: Mapping[str, str] | None = None) -> None:
        if not (BIN / "rabbitmq-server").exists():
            raise RuntimeError(f"RabbitMQ is not installed: no rabbitmq-server in {BIN}")
        self.folder = Path(tempfile.mkdtemp(prefix="chronicle-rabbit-"))
        self._port, self._management, dist, epmd, self._tls_port = free_ports(5)
        self._epmd_port = epmd
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}/%2F"
        self.certs: Certs | None = make_certs(self.folder / "certs") if tls else None
        self.queues = Queues(self.url)
        self.management_url = f"http://guest:guest@127.0.0.1:{self._management}"
        self.api = ManagementApi(self.management_url)
        self._name = f"chronicle-{self._port}@localhost"
        self._environment = self._write(dist, dict(settings or {}))
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self._calls = itertools.count()

    @property
    def tls_url(self) -> str:
        """The listener that asks for a client certificate; the password still decides who it is."""
        if self.certs is None:
            raise RuntimeError("this node was made without tls=True")
        return f"amqps://guest:guest@localhost:{self._tls_port}/%2F"

    @property
    def pid(self) -> int:
        """The pid of the Erlang machine, not of the shell that started it."""
        return int(self._pid_file.read_text())

    @property
    def running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def start(self, timeout: float = START_TIMEOUT) -> RabbitNode:
        """Start the node, with the data it had, and return when it is ready for work."""
        if self.running:
            raise RuntimeError("the node is running")
        deadline = time.monotonic() + timeout
        has_data = (self.folder / "data").exists()
        if self not in self.running_here:
            self.running_here.append(self)
        self._pid_file.unlink(missing_ok=True)
        self._start_epmd()
        with (self.folder / "console.log").open("ab") as console:
            server = self._server = subprocess.Popen(
                [BIN / "rabbitmq-server"],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        guard(server, self.folder)
        while not self.is_ready:
            if server.poll() is not None:
                raise RuntimeError(f"RabbitMQ ended while starting; its last lines:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                tail = self.log_tail()
                self._end(signal.SIGKILL)
                raise RuntimeError(f"RabbitMQ was not ready after {timeout:g} s; its last lines:\n{tail}")
            time.sleep(0.1)
        if has_data:
            self._await_leaders()
        return self

    def stop(self) -> None:
        """Stop the node in good order (TERM); its data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node (KILL); durable data stays."""
        if self.running and not self._frozen:
            self.evaluate(WRITE_PAPERS)
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the node's clock: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self._frozen = False

    def ctl(self, *args: str) -> str:
        """What `rabbitmqctl` says to this node; fails when it fails. It costs half a second of CPU."""
        return self._told([BIN / "rabbitmqctl", *args])

    def evaluate(self, expression: str) -> str:
        """What an Erlang expression gives inside the node, as it is printed; fails when it fails."""
        # Each call has a name of its own: a node lets nobody in under the name of one that is not gone yet.
        ours = f"test{next(self._calls)}"
        command = ("erl_call", "-h", ours, "-sname", self._name, "-e")
        answer = self._told(command, f"begin {expression} end.\n")
        given, value = answer.strip()[1:-1].split(", ", 1)
        if given != "ok":
            raise RuntimeError(f"{expression.strip()} failed: {value}")
        return value

    @property
    def is_ready(self) -> bool:
        """Whether the broker is up and takes clients, and nobody has frozen it."""
        if not self.running or self._frozen:
            return False
        # The port is asked first: until it opens the machine may not know what it is asked.
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", self._port)):
                return False
        return self.evaluate("rabbit_boot_state:get()") == "ready"

    def stop_app(self) -> None:
        """Stop the broker inside the running Erlang machine: the quick half of a restart."""
        self.evaluate("ok = rabbit:stop()")

    def start_app(self) -> None:
        self.evaluate("ok = rabbit:start()")
        wait_for(lambda: self.is_ready, START_TIMEOUT, "the broker")
        self._await_leaders()

    def counts(self, queue: str) -> tuple[int, int]:
        """Messages ready and unacknowledged, as the queue counts them; a quorum queue's are a tick old."""
        ready, unacknowledged = self.evaluate(COUNTS.format(queue=queue)).strip("{}").split(", ")
        return int(ready), int(unacknowledged)

    def delete_queues(self) -> None:
        """Leave no queue behind: each quorum queue keeps the node busy, ten times a second."""
        self.evaluate(DELETE_QUEUES)

    @contextlib.contextmanager
    def crashed(self, queue: str) -> Iterator[None]:
        """As long as it lasts, the broker believes that this queue has crashed: it answers 404."""
        self.evaluate(SET_STATE.format(queue=queue, state="crashed"))
        try:
            yield
        finally:
            self.evaluate(SET_STATE.format(queue=queue, state="live"))

    @contextlib.contextmanager
    def memory_alarm(self) -> Iterator[None]:
        """As long as it lasts, the broker believes to be out of memory and stops whoever publishes."""
        usual = self.evaluate("vm_memory_monitor:get_vm_memory_high_watermark()")
        self.evaluate("ok = vm_memory_monitor:set_vm_memory_high_watermark(0)")
        try:
            wait_for(lambda: "memory" in self.evaluate("rabbit_alarm:get_alarms()"), 30, "the memory alarm")
            yield
        finally:
            self.evaluate(f"ok = vm_memory_monitor:set_vm_memory_high_watermark({usual})")

    def logs(self) -> list[Path]:
        """The files the node has written to, the one that says most at the end."""
        logs = sorted((self.folder / "log").glob("*.log"), key=lambda file: file.stat().st_size)
        return [file for file in (self.folder / "console.log", *logs) if file.exists()]

    def log_tail(self, lines: int = 15) -> str:
        """The last lines the node wrote, wherever it wrote them."""
        text = "".join(file.read_text(errors="replace") for file in self.logs())
        return "\n".join(text.splitlines()[-lines:]) or "(none)"

    def close(self) -> None:
        """End the node and its epmd, and remove the folder."""
        if self in self.running_here:
            self.running_here.remove(self)
        self._end(signal.SIGKILL)
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    def _await_leaders(self) -> None:
        wait_for(lambda: self.evaluate(ALL_HAVE_LEADERS) == "true", 30, "leaders of quorum queues")

    def _told(self, command: Sequence[str | Path], stdin: str = "", timeout: float = 60.0) -> str:
        """What a tool says that finds the node by its environment; fails when it fails."""
        name = Path(command[0]).name
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                cwd=self.folder,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{name} took longer than {timeout:g} s") from None
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _start_epmd(self) -> None:
        # Started here, in the foreground, so that its pid is known: Erlang would leave one behind.
        if self._epmd is None or self._epmd.poll() is not None:
            self._epmd = subprocess.Popen(
                ["epmd", "-address", "127.0.0.1", "-port", str(self._epmd_port)],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            guard(self._epmd, self.folder)

    def _end(self, how: signal.Signals) -> None:
        server = self._server
        if server is None or server.poll() is not None:
            return
        # A node killed while it starts may not have written its pid yet; its session is ours all the same.
        if not self._pid_file.exists():
            os.killpg(server.pid, signal.SIGKILL)
        else:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
                os.kill(self.pid, how)
        try:
            server.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(STOP_TIMEOUT)
            raise RuntimeError(f"RabbitMQ did not end within {STOP_TIMEOUT:g} s of {how.name}") from None

    def _write(self, dist: int, settings: dict[str, str]) -> dict[str, str]:
        """Write the node's files; the environment that leads it there."""
        conf = {
            "listeners.tcp.1": f"127.0.0.1:{self._port}",
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": str(self._management),
            "loopback_users": "none",
            "collect_statistics_interval": "500",  # the API shows a queue's policy so much later; usually 5 s
            "disk_free_limit.absolute": "50MB",
            "vm_memory_high_watermark.absolute": "1GB",
            "max_message_size": str(128 * 1024 * 1024),  # 4.0 allows only 16 MiB, as much as --max-body
        }
        if self.certs is not None:
            conf |= {
                "listeners.ssl.1": f"127.0.0.1:{self._tls_port}",
                "ssl_options.cacertfile": str(self.certs.ca),
                "ssl_options.certfile": str(self.certs.server.cert),
                "ssl_options.keyfile": str(self.certs.server.key),
                "ssl_options.verify": "verify_peer",
                "ssl_options.fail_if_no_peer_cert": "true",
            }
        lines = [f"{key} = {value}\n" for key, value in (conf | settings).items()]
        (self.folder / "rabbitmq.conf").write_text("".join(lines))
        (self.folder / "advanced.config").write_text(ADVANCED)
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self._pid_file),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(dist),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{LOOPBACK} {QUIET}",
            "RABBITMQ_CTL_ERL_ARGS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
