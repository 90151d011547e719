"""Questions to a Kafka cluster about its topics, each with a bound.

Rule 1: no question creates anything: a slip in a name must not make a topic (K1).
Rule 2: a question that nobody answers ends with why, as far as the client knows (Witness); what no further
        wait can change, a wrong password for example, ends it at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final, Self

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from chronicle.core.frozen import frozen
from chronicle.errors import BrokerRefused
from chronicle.transports.kafka.address import Address, address_of, client_config
from chronicle.transports.kafka.chatter import Chatter
from chronicle.transports.kafka.problems import RIGHTS, Witness, built, error_in, no_topic
from chronicle.transports.seam import Connector

ANSWER_TIMEOUT: Final = 10.0  # seconds
DOWN_TIMEOUT: Final = 1.0  # when no broker can be reached: whoever asks, asks again
TURN: Final = 0.1  # seconds between two looks at what goes on beside a wait
NO_IDENTITY: Final = "A" * 22  # zeros
OFFSETS_KEPT: Final = "offsets.retention.minutes"
UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


@frozen
class Topic:
    """A topic as it is."""

    name: str
    partitions: tuple[int, ...]  # their numbers
    replication: int
    allowed: frozenset[AclOperation] | None  # what this user may do; None: the brokers do not say
    identity: str  # another one after it was deleted and made anew; empty from brokers that have none


class Admin:
    """One client for questions; it lives for a few of them, and must be closed.

    Its answers come on a thread of the client's own. If Python's collector, at work on that thread, were the
    one to let the client go, librdkafka would end the process.
    """

    def __init__(
        self, connector: Connector, stopping: Callable[[], bool], patience: float = ANSWER_TIMEOUT
    ) -> None:
        self._patience = patience  # seconds for an answer
        self.address: Address = address_of(connector.url, connector.extras)
        self._stopping = stopping
        self._witness = Witness(self.address)
        self._client: AdminClient = built(
            AdminClient,
            {**client_config(self.address, connector.tls, connector.tag), "error_cb": self._witness},
            self.address,
            logger=Chatter(self.address, deque(maxlen=1)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go at once; may be called twice."""
        self._client.__exit__(None, None, None)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that there are."""
        asked = self._client.describe_topics(
            TopicCollection(list(names)),
            request_timeout=self._patience,
            include_authorized_operations=True,
        )
        found = {}
        for name, future in asked.items():
            try:
                found[name] = _topic(self._answer(future))
            except KafkaException as exception:
                if error_in(exception).code() not in UNKNOWN:
                    raise self._witness.problem(error_in(exception), topic=name) from None
        return found

    def topic(self, name: str) -> Topic:
        """This topic; NoSuchQueue if there is none."""
        found = self.topics((name,)).get(name)
        if found is None:
            raise no_topic(self.address, name)
        return found

    def check_group(self, group: str) -> None:
        """BrokerRefused if this user may not read in the group; a group that is not there yet is no problem.

        A consumer would not be told: it goes on looking for the group's coordinator.
        """
        asked = self._client.describe_consumer_groups(
            [group], request_timeout=self._patience, include_authorized_operations=True
        )
        try:
            allowed = self._answer(asked[group]).authorized_operations
        except KafkaException as exception:
            error = error_in(exception)
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise self._witness.problem(error, group=group) from None
            return  # whatever it is, it stops nobody from joining
        if allowed and AclOperation.READ not in allowed:
            raise BrokerRefused(
                f"{self.address.place}: this user may not read in the group {group!r}", RIGHTS
            )

    def settings(self, names: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """What is set for these topics, as far as this user may see it."""
        asked = self._client.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in names], request_timeout=self._patience
        )
        found: dict[str, Mapping[str, str]] = {}
        for resource, future in asked.items():
            try:
                entries = self._answer(future)
            except KafkaException:
                continue  # it is a permission of its own, and what it says is only good to know
            found[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
        return found

    def offsets_kept(self) -> int | None:
        """For how many minutes the brokers remember what was committed in a group without members.

        None if this user may not know. Raises ChronicleError when there is no answer.
        """
        try:
            cluster = self._answer(self._client.describe_cluster(request_timeout=self._patience))
            one = ConfigResource(ResourceType.BROKER, str(cluster.nodes[0].id))
            asked = self._client.describe_configs([one], request_timeout=self._patience)
            kept = self._answer(asked[one])[OFFSETS_KEPT].value
        except (KafkaException, LookupError):
            return None
        return int(kept) if str(kept).isdigit() else None

    def offsets(self, name: str, numbers: Iterable[int], where: OffsetSpec) -> dict[int, int]:
        """The offsets at this place of a topic's partitions. Raises ChronicleError."""
        asked = {TopicPartition(name, number): where for number in numbers}
        if not asked:
            return {}
        answers = self._client.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._patience
        )
        try:
            return {one.partition: self._answer(future).offset for one, future in answers.items()}
        except KafkaException as exception:
            raise self._witness.problem(error_in(exception), topic=name) from None

    def create(
        self, name: str, partitions: int | None, replication: int | None, config: Mapping[str, str]
    ) -> bool:
        """Make a topic; False if somebody else just did."""
        topic = NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=replication or -1,
            config=dict(config),
        )
        (future,) = self._client.create_topics([topic], request_timeout=self._patience).values()
        try:
            self._answer(future)
        except KafkaException as exception:
            error = error_in(exception)
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._not_created(error, name) from None
        return True

    def _not_created(self, error: KafkaError, name: str) -> Exception:
        where = f"{self.address.place}: topic {name!r}"
        match error.code():
            case KafkaError.INVALID_REPLICATION_FACTOR:
                return BrokerRefused(
                    f"{where}: the cluster has too few brokers for that many copies",
                    "use a smaller --replication",
                )
            case KafkaError.INVALID_PARTITIONS:
                return BrokerRefused(f"{where}: the brokers do not accept that many partitions", "use fewer")
            case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return BrokerRefused(f"{where}: this user may not create it", RIGHTS)
            case KafkaError.POLICY_VIOLATION | KafkaError.INVALID_CONFIG:
                return BrokerRefused(
                    f"{where}: the cluster's rules do not allow it", "create it as its administrators do"
                )
        return self._witness.problem(error, topic=name)

    def _answer(self, future: Any) -> Any:
        """Wait for it; raises KafkaException, what the witness heard, or BrokerUnreachable after a stop."""
        asked = monotonic()
        while True:
            try:
                return future.result(TURN)
            except TimeoutError:
                self._client.poll(0)
                self._witness.look()
                waited = monotonic() - asked
                if self._stopping() or waited > (
                    DOWN_TIMEOUT if self._witness.down else self._patience + 1.0
                ):
                    raise self._witness.silence() from None
            finally:
                if future.done():
                    self._client.poll(0)


def _topic(described: TopicDescription) -> Topic:
    allowed: Any = described.authorized_operations  # its stub says less than it is
    return Topic(
        described.name,
        tuple(sorted(partition.id for partition in described.partitions)),
        min((len(partition.replicas) for partition in described.partitions), default=0),
        frozenset(allowed) if allowed else None,
        "" if str(described.topic_id) == NO_IDENTITY else str(described.topic_id),
    )
