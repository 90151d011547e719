"""librdkafka's own mock of Kafka, for machines without Java.

It speaks to real sockets, knows groups, commits and idempotent producers. It knows no TLS, no log-ins, no
rights, not the new group protocol, and keeps nothing: what it cannot do is tested where Kafka can be had.
"""

from __future__ import annotations

import ctypes
from ctypes.util import find_library
from pathlib import Path
from typing import Self

import confluent_kafka

from support.topics import Topics

PRODUCER = 0


class KafkaMock:
    """A cluster of one broker inside this process; `close` it at the end."""

    def __init__(self) -> None:
        self._library = library = _library()
        said = ctypes.create_string_buffer(512)
        self._client = library.rd_kafka_new(PRODUCER, library.rd_kafka_conf_new(), said, len(said))
        if not self._client:
            raise RuntimeError(f"librdkafka gave no client: {said.value.decode()}")
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, 1)
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.address: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self.topics = Topics(self.address, create=self._create)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"kafka://{self.address}"

    @property
    def is_ready(self) -> bool:
        return True

    def tidy(self) -> None:
        """Forget the topics that were made: nothing can delete them."""
        self.topics.made.clear()

    def fail(self, request: int, *errors: int) -> None:
        """Answer the next so many requests of this kind (Kafka's number for it) with these errors."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(errors), codes)

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def _create(self, topic: str, partitions: int) -> None:
        if problem := self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1):
            raise RuntimeError(f"the mock made no topic {topic}: error {problem}")


def _library() -> ctypes.CDLL:
    """The library that confluent-kafka itself uses."""
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    path = next((str(file) for file in beside.glob("librdkafka*")), None) or find_library("rdkafka")
    if path is None:
        raise RuntimeError("librdkafka is not where confluent-kafka brings it")
    library = ctypes.CDLL(path)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_flush": (number, [pointer, number]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
        "rd_kafka_mock_push_request_errors_array": (
            None,
            [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(number)],
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def produce_raw(servers: str, topic: str, value: bytes, header: tuple[bytes, bytes]) -> None:
    """Append a record to partition 0, with a header whose name may be any bytes."""
    library = _library()
    conf, said = library.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", servers.encode(), said, len(said))
    client = library.rd_kafka_new(PRODUCER, conf, said, len(said))
    text, size, number = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    name, content = header
    library.rd_kafka_producev(
        ctypes.c_void_p(client), number(1), text(topic.encode()), number(3), ctypes.c_int32(0),
        number(4), text(value), size(len(value)), number(7), number(2),
        number(9), text(name), text(content), ctypes.c_ssize_t(len(content)), number(0),
    )  # fmt: skip
    problem = library.rd_kafka_flush(client, 10_000)
    library.rd_kafka_destroy(client)
    if problem:
        raise RuntimeError(f"not written: error {problem}")
