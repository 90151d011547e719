"""Which tests run in one process, one after the other: those of a file that starts brokers of its own, and a
third of those at Kafka.

All other tests go to whoever is free. (The groups of pytest-xdist's own `loadgroup` do nothing with
pytest 9.2.)
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# The fixtures that start a broker for one file.
OWN_BROKERS: Final = (
    "private_redis", "private_sentinels", "private_cluster", "private_kafka", "kafka_trio",
)  # fmt: skip


# A Kafka is a whole Java machine: one for each worker would be more than a small computer has room for.
KAFKAS: Final = 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByBroker(config, log)


class ByBroker(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if _starts_brokers(self.config.rootpath / file):
            return file
        at_kafka = "kafka" in nodeid and not file.startswith("tests/unit")
        return f"kafka {crc32(file.encode()) % KAFKAS}" if at_kafka else nodeid


@cache
def _starts_brokers(file: Path) -> bool:
    text = file.read_text()
    return any(word in text for word in OWN_BROKERS)
