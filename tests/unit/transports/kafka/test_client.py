"""The thread that polls: what it makes of a client that does not say that no broker is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from time import sleep
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from chronicle.core.notice import Notice
from chronicle.errors import BrokerUnreachable
from chronicle.transports.kafka import client as module
from chronicle.transports.kafka.assignment import Assignment
from chronicle.transports.kafka.client import Client
from support.waiting import wait_for

PATIENCE = 10.0
GONE = KafkaError(KafkaError._TRANSPORT)


class Forgetful:
    """Stands for a consumer that cannot connect, and says nothing of the whole."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.down = True
        self._error_cb = config["error_cb"]

    def subscribe(self, _topics: list[str], **_callbacks: Any) -> None: ...

    def poll(self, _timeout: float) -> None:
        sleep(0.01)
        if self.down:
            self._error_cb(GONE)

    def list_topics(self, _topic: str, timeout: float) -> None:
        del timeout
        if self.down:
            raise KafkaException(GONE)

    def resume(self, _partitions: Any) -> None: ...

    def close(self) -> None: ...


class Nothing:
    """Stands for dead letters of which there are none, and for a topic that nobody can look at."""

    problem = None

    def __len__(self) -> int:
        return 0

    def serve(self) -> None: ...

    def hurry(self) -> None: ...

    def changed(self, _now: float) -> None: ...

    def look(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def notices() -> deque[Notice]:
    return deque()


@pytest.fixture
def client(notices: deque[Notice], monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(module, "DOUBT", 0.1)
    monkeypatch.setattr(module, "PROBE", 0.1)
    nothing: Any = Nothing()
    make: Any = Forgetful
    client = Client(
        {}, "topic", nothing, Assignment("topic"), nothing, notices, lambda: None,
        lambda error: BrokerUnreachable(error.str()), make,
    )  # fmt: skip
    client.start()
    yield client
    client.close(PATIENCE)


def test_K7_where_a_broker_cannot_be_reached_they_are_asked_whether_any_can(
    client: Client, notices: deque[Notice]
) -> None:
    """The last one that stops in good order may be forgotten before it is gone."""
    wait_for(lambda: client.away_since is not None, PATIENCE, "an outage")
    assert [notice.event for notice in notices] == ["consumer_poll_failed"]
    consumer: Any = client.consumer
    consumer.down = False
    wait_for(lambda: client.away_since is None, PATIENCE, "the end of it")
    assert [notice.event for notice in notices] == ["consumer_poll_failed", "kafka.brokers_back"]
