"""Negative controls at Redis: consumers that lose entries are found out, or the checker proves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from support import journal
from support.checker import AtRedis, Campaign, NewCampaign
from support.redis_server import RedisServer

BROKEN: Final = """
import json, os
from redis import Redis
from support import journal

client = Redis.from_url(os.environ["URL"])
stream, group = os.environ["QUEUE"], "chronicle"
while True:
    for _, entries in client.xreadgroup(group, "broken", {{stream: ">"}}, count=4, block=100, noack={noack}):
        for number, fields in entries:
            if {acks_first}:
                client.xack(stream, group, number)
            if journal.sync(json.loads(fields[b"data"])) is False:
                transaction = client.pipeline(transaction=True)
                transaction.xadd(stream + ".dlq", fields)
                transaction.xack(stream, group, number)
                transaction.execute(raise_on_error=False)
            else:
                client.xack(stream, group, number)
"""


@contextmanager
def broken(campaign: Campaign, *, noack: bool = False, acks_first: bool = False) -> Iterator[None]:
    """A consumer that is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", BROKEN.format(noack=noack, acks_first=acks_first)],
        env={
            **os.environ,
            "PYTHONPATH": os.path.dirname(os.path.dirname(journal.__file__)),
            "URL": campaign.place.url,
            "QUEUE": campaign.queue,
            journal.JOURNAL: str(campaign.path),
        },
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("noack", "acks_first"), [(True, False), (False, True)])
def test_a_consumer_that_acknowledges_before_it_works_is_reported(
    on_redis: NewCampaign, noack: bool, acks_first: bool
) -> None:
    """S3, S4: what was begun and never finished is in nobody's pending list."""
    campaign = on_redis("broken")
    campaign.send(20)
    campaign.send(20, seconds=600)
    with broken(campaign, noack=noack, acks_first=acks_first):
        campaign.wait_started(21)
    report = campaign.report(patience=1.0)
    assert 20 in report.lost, "the entry that was begun and never finished"
    assert not report.unexpected


def test_a_consumer_that_only_keeps_entries_pending_is_not(on_redis: NewCampaign) -> None:
    """The same consumer without its fault: killed in the middle, it has lost nothing."""
    campaign = on_redis("slow")
    campaign.send(20)
    campaign.send(20, seconds=600)
    with broken(campaign):
        campaign.wait_started(21)
    report = campaign.report(patience=1.0)
    assert (report.lost, report.unexpected) == ([], [])
    assert sorted(report.queued) == list(range(20, 40))


def test_a_transaction_whose_dead_letter_fails_is_reported(
    on_redis: NewCampaign, redis_server: RedisServer
) -> None:
    """S6: MULTI has no way back, so the entry is acknowledged and its dead letter was never written."""
    campaign = on_redis("transaction")
    assert isinstance(campaign.place, AtRedis)
    with redis_server.client() as client:
        client.set(campaign.dead, "not a stream")
    campaign.send(1, answer="false")
    campaign.send(1)
    with broken(campaign):
        campaign.wait_ended(1)
    redis_server.streams.delete(campaign.dead)
    report = campaign.report(patience=1.0)
    assert (report.lost, report.handled) == ([0], frozenset({1}))


def test_what_nobody_sent_is_reported(on_redis: NewCampaign) -> None:
    campaign = on_redis("stranger")
    campaign.send(2)
    campaign.sent.discard(1)
    assert campaign.report().unexpected == [1]
