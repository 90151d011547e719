"""K-a: members of a group come, leave and are killed at random, and nothing is lost."""

from __future__ import annotations

import signal
import time
from random import Random
from typing import Final

import pytest

from support.checker import AtKafka, Campaign, NewCampaign
from support.commits import Commits
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.waiting import wait_for

CONCURRENCY: Final = 10
MEMBERS: Final = 3
CLASSIC: Final = ("--set", "session.timeout.ms=2000", "--set", "heartbeat.interval.ms=300")
CONSUMER: Final = ("--set", "group.protocol=consumer")
EAGER: Final = (*CLASSIC, "--set", "partition.assignment.strategy=range")


class Crowd:
    """Up to three members of one group, and what happens to them."""

    def __init__(
        self, campaign: Campaign, start: StartChronicle, luck: Random, options: tuple[str, ...]
    ) -> None:
        self._campaign = campaign
        self._start = start
        self._luck = luck
        self._options = ("--concurrency", str(CONCURRENCY), *options)
        self.members: list[ChronicleProcess] = []
        self.left: list[ChronicleProcess] = []
        self.killed: dict[int, float] = {}  # when, by pid
        self.unheard: dict[int, float] = {}  # those who could not commit in the end
        self._told: dict[int, float] = {}  # those who were told to leave

    def join(self) -> None:
        syncer = self._luck.choice(("sync", "tasked"))
        self.members.append(self._campaign.consume(self._start, *self._options, syncer=syncer))

    def leave(self) -> None:
        process = self._leaves()
        process.signal(signal.SIGTERM)
        self._told[process.pid] = time.monotonic()
        self.left.append(process)

    def kill(self) -> None:
        process = self._leaves()
        process.kill()
        self.killed[process.pid] = time.monotonic()

    def fill_up(self) -> None:
        """Somebody is there."""
        if not self.members:
            self.join()

    def stir(self) -> None:
        """Something happens to somebody."""
        if len(self.members) < MEMBERS:
            self.join()
        elif not self.killed:
            self.kill()  # the first to go: with bad luck nobody else is
        else:
            self._luck.choice((self.leave, self.kill))()

    def go_home(self) -> None:
        while self.members:
            self.leave()
        for process in self.left:
            code = process.wait()
            # One that was not yet up ends by the signal itself; one whose group waits for a dead member may
            # not be able to commit, and says so.
            assert code in (0, 4, -signal.SIGTERM), process.stderr[-2000:]
            if code == 4:
                self.unheard[process.pid] = self._told[process.pid]

    def allowance(self, commits: Commits) -> int:
        """How many repeats the kills excuse: what was in work, and what was not committed yet."""
        ended = {**self.killed, **self.unheard}
        return sum(CONCURRENCY + commits.uncommitted(pid, at) for pid, at in ended.items())

    def said(self, event: str) -> list[str]:
        """What those who left in good order said of this."""
        return [str(line) for process in self.left for line in process.lines(event)]

    def _leaves(self) -> ChronicleProcess:
        return self.members.pop(self._luck.randrange(len(self.members)))


def live_through(
    campaign: Campaign, start: StartChronicle, luck: Random, options: tuple[str, ...], patience: float
) -> None:
    """Let a crowd handle everything, with trouble every second or so, and compare."""
    crowd = Crowd(campaign, start, luck, options)
    with Commits(campaign) as commits:
        for _ in range(MEMBERS):
            crowd.join()
        campaign.wait_started(1)
        deadline = time.monotonic() + patience
        while len(ended := set(campaign.ended())) < len(campaign.sent):
            assert time.monotonic() < deadline, f"not handled: {sorted(campaign.sent - ended)[:20]}"
            crowd.stir()
            time.sleep(luck.uniform(0.3, 1.5))
        # What the killed had handled and not committed comes again as soon as the group misses them.
        crowd.fill_up()
        assert isinstance(campaign.place, AtKafka)
        lag, group = campaign.place.topics.lag, f"chronicle.{campaign.queue}"
        wait_for(lambda: lag(group, campaign.queue) == 0, patience, "what nobody had committed")
        crowd.go_home()
    assert commits.steps_back() == []
    assert commits.premature() == []
    assert crowd.said("kafka.records_deleted") == []
    allowance = crowd.allowance(commits)
    report = campaign.report()
    met = f"{len(crowd.killed)} killed, {len(crowd.left)} left in good order"
    print(f"{met}; {len(commits.looks)} looks; {report.repeats} repeats of {allowance} excused")
    assert (report.lost, report.unexpected, report.queued, report.dead) == ([], [], (), frozenset())
    assert crowd.killed
    assert report.repeats <= allowance


@pytest.mark.parametrize("options", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_members_come_and_go_and_are_killed(
    on_kafka: NewCampaign, chronicle: StartChronicle, luck: Random, options: tuple[str, ...]
) -> None:
    """K-a, F1: lost 0; commits never go back, nor past what is unfinished; repeats are those of the kills."""
    campaign = on_kafka("crowd", partitions=6)
    campaign.send(5000, seconds=0.02)
    live_through(campaign, chronicle, luck, options, 120)


@pytest.mark.soak
@pytest.mark.parametrize("options", [CLASSIC, CONSUMER, EAGER], ids=["classic", "consumer", "eager"])
def test_fifty_thousand_records_and_members_that_come_and_go(
    on_kafka: NewCampaign, chronicle: StartChronicle, luck: Random, options: tuple[str, ...]
) -> None:
    """K-a: the same for minutes."""
    campaign = on_kafka("soak", partitions=6)
    campaign.send(50_000, seconds=0.02)
    live_through(campaign, chronicle, luck, options, 1800)
