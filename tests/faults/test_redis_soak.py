"""The soak at Redis: faults in random order for minutes, all at one stream. Run it with `-m soak`.

CHRONICLE_SOAK_SECONDS says how long (180), CHRONICLE_TEST_SEED repeats the choices of an earlier run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from support.checker import Campaign, NewCampaign
from support.fixtures import StartChronicle, StartRedis
from support.process import ChronicleProcess
from support.proxy import Mode, Proxy
from support.redis_server import RedisServer
from support.waiting import wait_for

SECONDS: Final = float(os.environ.get("CHRONICLE_SOAK_SECONDS", "180"))
OPTIONS: Final = ("--concurrency", "4", "--reconnect-max", "1s", "--claim-idle", "2s")
# A consumer may end only like this: drained, work returned, or killed by us.
ENDINGS: Final = (0, 4, -signal.SIGKILL)
WORDS: Final = (b"XREADGROUP", b"XACK", b"EVAL", b"XREAD", b".dlq", b".retry")


class Soak:
    """Two consumers on one stream behind one proxy, and what can be done to them; each fault heals."""

    def __init__(
        self, server: RedisServer, proxy: Proxy, campaign: Campaign, start: StartChronicle, luck: Random
    ) -> None:
        self._server = server
        self._proxy = proxy
        self._campaign = campaign
        self._start = start
        self._luck = luck
        self.consumers = [self._consume(), self._consume()]

    @property
    def faults(self) -> list[Callable[[], None]]:
        return [
            self.cut, self.cut, self.lose_replies, self.lose_replies, self.kill, self.kill, self.stop,
            self.stop, self.hang_up, self.freeze_consumer, self.silence, self.delay, self.slices,
            self.restart_server, self.kill_server, self.freeze_server, self.fill_server,
        ]  # fmt: skip

    def cut(self) -> None:
        self._proxy.cut()

    def lose_replies(self) -> None:
        self._proxy.lose_replies(self._luck.choice(WORDS), self._luck.randrange(1, 5))

    def kill(self) -> None:
        self._replace(signal.SIGKILL)

    def stop(self) -> None:
        self._replace(signal.SIGTERM)

    def hang_up(self) -> None:
        self._server.disconnect_everybody()

    def freeze_consumer(self) -> None:
        process = self._luck.choice(self.consumers)
        process.signal(signal.SIGSTOP)
        self._pause(14)
        process.signal(signal.SIGCONT)

    def silence(self) -> None:
        self._spoil(Mode.BLACK_HOLE, 15)

    def delay(self) -> None:
        self._spoil(Mode.DELAY, 3)

    def slices(self) -> None:
        self._spoil(Mode.SLICE, 3)

    def restart_server(self) -> None:
        self._server.stop()
        self._pause(3)
        self._server.start()

    def kill_server(self) -> None:
        self._server.kill()
        self._server.start()

    def freeze_server(self) -> None:
        self._server.freeze()
        self._pause(15)
        self._server.thaw()

    def fill_server(self) -> None:
        self._server.configure(maxmemory="1")
        self._pause(5)
        self._server.configure(maxmemory="0")

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
        syncer = self._luck.choice(("sync", "tasked"))
        url = self._proxy.url_for(self._server.url)
        process = self._campaign.consume(self._start, *OPTIONS, syncer=syncer, url=url)
        process.wait_for_line("consumer.starting")  # before that, nobody has asked for signals yet
        return process


@pytest.mark.soak
def test_random_faults_lose_nothing(
    private_redis: StartRedis, on_redis: NewCampaign, chronicle: StartChronicle, luck: Random
) -> None:
    """F1–F12, S-a–S-f in any order: all is handled, nothing stays pending, nobody ends."""
    server = private_redis(durable=True)
    campaign = on_redis("soak", server=server)
    told: list[str] = []
    with Proxy(server.url) as proxy:
        soak = Soak(server, proxy, campaign, chronicle, luck)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            campaign.send(luck.randrange(50), seconds=0.02)
            time.sleep(luck.uniform(0, 1))
            fault = luck.choice(soak.faults)
            told.append(fault.__name__)
            fault()
            assert all(process.running for process in soak.consumers), told
        print(f"{len(campaign.sent)} messages, {len(told)} faults, {proxy.lost} lost replies")
        campaign.wait_all_ended(120)
        wait_for(lambda: not server.streams.pending(campaign.queue), 30, "everything settled")
        for process in soak.consumers:
            process.signal(signal.SIGTERM)
            assert process.wait(60) == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ()), told
