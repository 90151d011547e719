"""Writes down the classes of a Kafka server, once for each Java: `python -m support.kafka_archive`.

Reading and checking thousands of classes is most of what a start costs, and the tests start some dozens.
"""

from __future__ import annotations

from support.kafka_server import ARCHIVE, KafkaServer, why_not


def write_archive() -> None:
    """It gets its name when it is whole, so that one that is there can be used."""
    half = ARCHIVE.with_suffix(".half")
    with KafkaServer(archive=half) as server:
        server.start()
        server.stop()
    half.rename(ARCHIVE)


if __name__ == "__main__" and not why_not() and not ARCHIVE.exists():
    write_archive()
