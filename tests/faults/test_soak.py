"""The soak: faults in random order for minutes, all at one queue. Run it with `-m soak`.

CHRONICLE_SOAK_SECONDS says how long (180), CHRONICLE_TEST_SEED repeats the choices of an earlier run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from random import Random

import pytest

from support.checker import Campaign, NewCampaign
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.proxy import Mode, Proxy
from support.rabbit import RabbitNode

SECONDS = float(os.environ.get("CHRONICLE_SOAK_SECONDS", "180"))
OPTIONS = ("--concurrency", "4", "--reconnect-max", "1s")
# A consumer may end only like this: drained, work returned, or killed by us.
ENDINGS = (0, 4, -signal.SIGKILL)


class Soak:
    """Two consumers on one queue behind one proxy, and what can be done to them; every fault heals itself."""

    def __init__(
        self, node: RabbitNode, proxy: Proxy, campaign: Campaign, start: StartChronicle, luck: Random
    ) -> None:
        self._node = node
        self._proxy = proxy
        self._campaign = campaign
        self._start = start
        self._luck = luck
        self.consumers = [self._consume(), self._consume()]

    @property
    def faults(self) -> list[Callable[[], None]]:
        return [
            self.cut, self.cut, self.kill, self.kill, self.stop, self.stop, self.freeze_consumer,
            self.silence, self.delay, self.slices, self.restart_broker, self.freeze_broker,
        ]  # fmt: skip

    def cut(self) -> None:
        self._proxy.cut()

    def kill(self) -> None:
        self._replace(signal.SIGKILL)

    def stop(self) -> None:
        self._replace(signal.SIGTERM)

    def freeze_consumer(self) -> None:
        process = self._luck.choice(self.consumers)
        process.signal(signal.SIGSTOP)
        self._pause(8)
        process.signal(signal.SIGCONT)

    def silence(self) -> None:
        self._spoil(Mode.BLACK_HOLE, 15)

    def delay(self) -> None:
        self._spoil(Mode.DELAY, 3)

    def slices(self) -> None:
        self._spoil(Mode.SLICE, 3)

    def restart_broker(self) -> None:
        self._node.stop_app()
        self._pause(3)
        self._node.start_app()

    def freeze_broker(self) -> None:
        self._node.freeze()
        self._pause(12)
        self._node.thaw()

    def _spoil(self, mode: Mode, longest: float) -> None:
        self._proxy.set(mode)
        self._pause(longest)
        self._proxy.set(Mode.PASS)

    def _pause(self, longest: float) -> None:
        time.sleep(self._luck.uniform(0, longest))

    def _replace(self, number: signal.Signals) -> None:
        at = self._luck.randrange(len(self.consumers))
        self.consumers[at].signal(number)
        assert self.consumers[at].wait(120) in ENDINGS
        self.consumers[at] = self._consume()

    def _consume(self) -> ChronicleProcess:
        url = self._proxy.url_for(self._node.url) + "?heartbeat=2&connection_timeout=1000"
        syncer = self._luck.choice(("sync", "tasked"))
        process = self._campaign.consume(self._start, *OPTIONS, syncer=syncer, url=url)
        process.wait_for_line("consumer.starting")  # before that, nobody has asked for signals yet
        return process


@pytest.mark.soak
@pytest.mark.parametrize("quorum", [False, True])
def test_random_faults_lose_nothing(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle, luck: Random, quorum: bool
) -> None:
    """F1–F12 in any order: every message sent is handled, and no consumer ends by itself."""
    node = rabbit.node
    campaign = on_rabbit("soak", quorum=quorum)
    told: list[str] = []
    with Proxy(node.url) as proxy:
        soak = Soak(node, proxy, campaign, chronicle, luck)
        end = time.monotonic() + SECONDS / 2
        while time.monotonic() < end:
            campaign.send(luck.randrange(50), seconds=0.02)
            time.sleep(luck.uniform(0, 1))
            fault = luck.choice(soak.faults)
            told.append(fault.__name__)
            fault()
            assert all(process.running for process in soak.consumers), told
        print(f"{len(campaign.sent)} messages, {len(told)} faults")
        campaign.wait_all_ended(120)
        for process in soak.consumers:
            process.signal(signal.SIGTERM)
            assert process.wait(60) == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ()), told
