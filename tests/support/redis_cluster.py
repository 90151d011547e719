"""A Redis cluster of three masters that a test may break, and whose slots it may move."""

from __future__ import annotations

from typing import Final, Self

from redis import RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.retry import Retry

from support.redis_server import RedisServer
from support.streams import Streams
from support.waiting import wait_for

NODES: Final = 3
SLOTS: Final = 16384
PATIENCE: Final = 30.0
SETTINGS: Final = {"cluster-enabled": "yes", "cluster-node-timeout": "2000"}


class Cluster:
    """Three servers that share the slots; `start` them, and `close` them at the end."""

    def __init__(self, *, durable: bool = False) -> None:
        self.nodes = [RedisServer(durable=durable, settings=SETTINGS) for _ in range(NODES)]
        self.streams = Streams(self.client, tagged=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The cluster, by way of two of its nodes: the third must be found."""
        return f"redis+cluster://{','.join(node.address for node in self.nodes[:2])}"

    def client(self) -> RedisCluster:
        """A client that finds the right node, and repeats nothing by itself."""
        return RedisCluster(
            startup_nodes=[ClusterNode("127.0.0.1", node.port) for node in self.nodes if node.running],
            retry=Retry(NoBackoff(), 0),
            socket_timeout=10.0,
            protocol=2,
            require_full_coverage=False,
        )

    def start(self) -> Self:
        """Start the nodes, share the slots out, and return when each of them knows about all."""
        for number, node in enumerate(self.nodes):
            node.start()
            first, last = number * SLOTS // NODES, (number + 1) * SLOTS // NODES - 1
            with node.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
                # Without different epochs they would first have to settle who is the elder.
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        with self.nodes[0].client() as client:
            for node in self.nodes[1:]:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        self.await_health()
        return self

    def await_health(self) -> None:
        """Return when every node says that all slots are served and all nodes known."""
        wait_for(lambda: all(_is_well(node) for node in self.nodes), PATIENCE, "a cluster in good health")

    def node_of(self, key: str) -> RedisServer:
        """The node that has this key's slot."""
        slot = key_slot(key.encode())
        with self.nodes[0].client() as client:
            for first, last, *places in client.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == places[0][1])
        raise RuntimeError(f"nobody has the slot {slot}")

    def move(self, key: str) -> RedisServer:
        """Give this key's slot, with all that is in it, to another node; the new one."""
        slot = key_slot(key.encode())
        old = self.node_of(key)
        new = next(node for node in self.nodes if node is not old)
        old_id, new_id = _id(old), _id(new)
        with old.client() as source, new.client() as target:
            target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", old_id)
            source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", new_id)
            while keys := source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                source.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", *keys)
            # The new owner first: until it knows, the old one would send clients in a circle.
            target.execute_command("CLUSTER", "SETSLOT", slot, "NODE", new_id)
            source.execute_command("CLUSTER", "SETSLOT", slot, "NODE", new_id)
        wait_for(lambda: self.node_of(key) is new, PATIENCE, "the move to be known")
        return new

    def disconnect_everybody(self) -> int:
        """End every client's connection at every node; how many there were."""
        return sum(node.disconnect_everybody() for node in self.nodes)

    def close(self) -> None:
        for node in self.nodes:
            node.close()


def _is_well(node: RedisServer) -> bool:
    facts = dict(line.split(":", 1) for line in _ask(node, "INFO").splitlines() if line)
    return facts["cluster_state"] == "ok" and int(facts["cluster_known_nodes"]) == NODES


def _id(node: RedisServer) -> str:
    return _ask(node, "MYID")


def _ask(node: RedisServer, what: str) -> str:
    with node.client() as client:
        said: bytes = client.execute_command("CLUSTER", what)
    return said.decode()
