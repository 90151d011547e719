"""Three Kafka servers in one cluster, each with a copy of everything, for a leader that really fails.

Two of three copies must have a record before it is confirmed, and two of three controllers decide: one
server may be dead without anything being lost, or standing still for longer than until it is noticed.
"""

from __future__ import annotations

from typing import Any, Final, Self

from confluent_kafka.admin import ConsumerGroupDescription

from support.kafka_properties import Seat, new_cluster
from support.kafka_server import KafkaServer
from support.ports import free_ports
from support.topics import Topics
from support.waiting import wait_for

PATIENCE: Final = 60.0
NODES: Final = 3


class KafkaTrio:
    """Three processes; `start` them, and `close` them at the end. Takes what a KafkaServer takes."""

    def __init__(self, **wanted: Any) -> None:
        cluster, controllers = new_cluster(), free_ports(NODES)
        self.servers = [
            KafkaServer(seat=Seat(node, cluster, controllers), **wanted) for node in range(1, NODES + 1)
        ]
        self.topics = Topics(",".join(server.address for server in self.servers), replication=NODES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """All three, by their plain ports."""
        return f"kafka://{self.topics.servers}"

    @property
    def proxied_url(self) -> str:
        """All three, each by way of its proxy."""
        places = (server.proxied_url.removeprefix("kafka://") for server in self.servers)
        return f"kafka://{','.join(places)}"

    def start(self) -> Self:
        """Start or thaw everything that does not run, and return when each of them has all copies."""
        for server in self.servers:
            server.restore_network()
            if server.running:
                server.thaw()
            else:
                server.launch()
        for server in self.servers:
            server.await_ready()
        wait_for(self.is_whole, PATIENCE, "every copy to be in step", every=0.1)
        return self

    def leader(self, topic: str, partition: int = 0) -> KafkaServer:
        """Who leads a partition now."""
        return self.servers[self.topics.leaders(topic)[partition] - 1]

    def coordinator(self, group: str) -> KafkaServer:
        """Who looks after a group now."""
        with self.topics.admin() as admin:
            found: ConsumerGroupDescription = admin.describe_consumer_groups([group])[group].result(PATIENCE)
        assert found.coordinator is not None
        return self.servers[found.coordinator.id - 1]

    def fail_over(self, topic: str, partition: int = 0) -> KafkaServer:
        """Kill the leader of a partition, and return when everything has living leaders; who was killed."""
        killed = self.leader(topic, partition)
        killed.kill()
        self.await_failover()
        return killed

    def await_failover(self) -> None:
        """Return when no partition is led by a server that is dead."""
        wait_for(self._is_led_by_the_living, PATIENCE, "the failover", every=0.1)

    def is_whole(self) -> bool:
        """Whether all three run, and every partition has three copies in step."""
        return all(server.running for server in self.servers) and all(
            len(part.isrs) == NODES for part in self._partitions()
        )

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def _is_led_by_the_living(self) -> bool:
        living = {server.seat.node for server in self.servers if server.running}
        return all(part.leader in living for part in self._partitions())

    def _partitions(self) -> list[Any]:
        with self.topics.admin() as admin:
            found = admin.list_topics(timeout=PATIENCE).topics
        return [part for topic in found.values() for part in topic.partitions.values()]
