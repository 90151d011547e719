"""The partitions of a running consumer."""

from __future__ import annotations

from support.process import ChronicleProcess


def held(process: ChronicleProcess) -> set[int]:
    """The partitions that it has, as it told them."""
    now: set[int] = set()
    for line in process.lines():
        if line.get("event") == "kafka.partitions_assigned":
            now |= set(line["partitions"])
        elif line.get("event") in ("kafka.partitions_revoked", "kafka.partitions_lost"):
            now -= set(line["partitions"])
    return now
