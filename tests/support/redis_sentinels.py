"""A Redis master with a replica and three sentinels, for a real failover.

Replication is asynchronous: what the master confirmed in its last milliseconds may be gone after a
failover, and so may acknowledgements (S9). `master` and `replica` change places with each failover.
"""

from __future__ import annotations

import json
from typing import Any, Final, Self
from urllib.parse import quote

from redis.exceptions import RedisError

from support.redis_server import RedisServer
from support.streams import Streams
from support.waiting import wait_for

SERVICE: Final = "chronicle-test"
DOWN_AFTER: Final = 1500  # ms of silence until a sentinel calls the master dead; on a busy machine 500 happen
PATIENCE: Final = 30.0
# How often sentinels ask, greet each other and vote, in ms: they take seconds for each unless told. While the
# master is down they ask a replica every second, whatever is told here, and promote none whose answer is
# older than five pings: with short pings there is no good replica half of the time.
QUICKLY: Final = {
    "INFO-PERIOD": 200,
    "PING-PERIOD": 400,
    "ASK-PERIOD": 200,
    "PUBLISH-PERIOD": 200,
    "ELECTION-TIMEOUT": 2000,
}


class Sentinels:
    """Five processes; `start` them, and `close` them at the end."""

    def __init__(self, *, durable: bool = False, password: str = "") -> None:
        self._servers = [
            RedisServer(durable=durable, password=password, settings={"masterauth": json.dumps(password)})
            for _ in range(2)
        ]
        self.master, self.replica = self._servers
        # Three that agree by two: one of them may be dead, and no one can decide alone.
        lines = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.master.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 3000",
            *([f"sentinel auth-pass {SERVICE} {json.dumps(password)}"] if password else []),
        ]
        self.sentinels = [RedisServer(sentinel=lines) for _ in range(3)]
        self.streams = Streams(lambda: self.master.client())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The service, by way of all its sentinels."""
        user = f":{quote(self.master.password, safe='')}@" if self.master.password else ""
        places = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{user}{places}/{SERVICE}/0"

    def start(self) -> Self:
        """Start everything, and return when a failover would work."""
        self.master.start()
        self.replica.start()
        with self.replica.client() as client:
            client.replicaof("127.0.0.1", self.master.port)
        wait_for(self._is_replicated, PATIENCE, "the replica to have everything")
        for sentinel in self.sentinels:
            sentinel.start()
            with sentinel.client() as client:
                for name, value in QUICKLY.items():
                    client.execute_command("SENTINEL", "DEBUG", name, value)
        wait_for(self._is_watched, PATIENCE, "the sentinels to know each other and the replica")
        return self

    def fail_over(self) -> None:
        """Kill the master, and return when every sentinel names the new one and it takes writes."""
        self.master.kill()
        self.await_failover()

    def await_failover(self) -> None:
        """Return when the replica has become the master, for everybody."""
        wanted = self.replica.port
        wait_for(lambda: self._named() == {wanted}, PATIENCE, "the failover")
        wait_for(lambda: _role(self.replica) == "master", PATIENCE, "the new master to take writes")
        self.master, self.replica = self.replica, self.master

    def restore_replica(self) -> None:
        """Start the killed one again, and return when it is the replica of its successor."""
        self.replica.start()
        wait_for(self._is_replicated, PATIENCE, "the old master to be a replica")
        wait_for(self._is_watched, PATIENCE, "the sentinels to know the replica")

    def close(self) -> None:
        # The sentinels first: they would begin a failover.
        for server in (*self.sentinels, *self._servers):
            server.close()

    def _named(self) -> set[int]:
        return {int(facts["port"]) for facts in self._said()}

    def _said(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for sentinel in self.sentinels:
            if sentinel.running:
                with sentinel.client() as client:
                    found.append(client.sentinel_master(SERVICE))
        return found

    def _is_replicated(self) -> bool:
        try:
            with self.replica.client() as client:
                facts = client.info("replication")
        except RedisError:
            return False
        return (facts.get("master_port"), facts.get("master_link_status")) == (self.master.port, "up")

    def _is_watched(self) -> bool:
        """Whether every sentinel has seen the others and a replica that it would promote."""
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                facts = client.sentinel_master(SERVICE)
                replicas = client.sentinel_slaves(SERVICE)
            if int(facts["num-other-sentinels"]) < len(self.sentinels) - 1 or not facts["is_master"]:
                return False
            healthy = [one for one in replicas if int(one["port"]) == self.replica.port]
            if not healthy or healthy[0]["is_sdown"] or healthy[0]["master-link-status"] != "ok":
                return False
        return True


def _role(server: RedisServer) -> str:
    with server.client() as client:
        return str(client.info("replication")["role"])
