"""What a group commits while it works, watched from outside and compared with the journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from confluent_kafka import KafkaException, TopicPartition

from support.checker import AtKafka, Campaign, is_settled

EVERY: Final = 0.05  # seconds between two looks
ANSWER: Final = 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """What was committed at one moment: an offset and its metadata, by partition."""

    time: float  # after the answer
    committed: dict[int, tuple[int, str]]


class Commits:
    """Looks at the commits of a campaign's group again and again, on a thread of its own."""

    def __init__(self, campaign: Campaign) -> None:
        assert isinstance(campaign.place, AtKafka)
        self._campaign = campaign
        self._place = campaign.place
        self._wanted = [
            TopicPartition(campaign.queue, number) for number in self._place.topics.leaders(campaign.queue)
        ]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.looks: list[Look] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        with self._place.topics.consumer(f"chronicle.{self._campaign.queue}") as consumer:
            while not self._over.wait(EVERY):
                try:
                    found = consumer.committed(self._wanted, timeout=ANSWER)
                except KafkaException:
                    continue  # asked again
                committed = {one.partition: (one.offset, one.metadata or "") for one in found}
                self.looks.append(Look(time.monotonic(), committed))

    def uncommitted(self, pid: int, at: float) -> int:
        """How much of what this process had done was not committed at that time."""
        before = [look for look in self.looks if look.time <= at]
        done = {step.number for step in self._campaign.steps("end") if step.pid == pid and step.time <= at}
        if not before:
            return len(done)
        committed = before[-1].committed
        places = (self._place.lies[number] for number in done)
        return sum(not is_settled(offset, *committed[partition]) for partition, offset in places)

    def steps_back(self) -> list[tuple[int, int, int]]:
        """Where a commit was behind an earlier one: the partition, and both offsets."""
        return [
            (number, before.committed[number][0], offset)
            for before, after in pairwise(self.looks)
            for number, (offset, _) in after.committed.items()
            if offset < before.committed[number][0]
        ]

    def premature(self, of: Collection[int] | None = None, by: int | None = None) -> list[int]:
        """The messages that a commit said were done while nobody had come to their end.

        Of all, or of these; nobody, or not the process of that number.
        """
        ended: dict[int, float] = {}
        for step in self._campaign.steps("end"):
            if by is None or step.pid == by:
                ended.setdefault(step.number, step.time)
        lies = [(number, lie) for number, lie in self._place.lies.items() if of is None or number in of]
        order = sorted(lies, key=lambda lie: ended.get(lie[0], float("inf")), reverse=True)
        early = []
        for look in self.looks:
            for number, (partition, offset) in order:
                if ended.get(number, float("inf")) <= look.time:
                    break
                if is_settled(offset, *look.committed[partition]):
                    early.append(number)
        return sorted(set(early))
