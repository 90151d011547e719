"""Negative controls: consumers that lose messages must be found out, or the checker is not to be trusted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support import journal
from support.checker import NewCampaign
from support.fixtures import StartChronicle

# Both take a message off the queue before it is handled: the one leaves it to the broker, the other acks.
BROKEN = """
import json, os, sys, time
import pika
from support import journal

def handle(channel, method, properties, body):
    if {acks_first}:
        channel.basic_ack(method.delivery_tag)
    journal.sync(json.loads(body))

connection = pika.BlockingConnection(pika.URLParameters(os.environ["URL"]))
channel = connection.channel()
channel.basic_qos(prefetch_count=4)
channel.basic_consume(os.environ["QUEUE"], handle, auto_ack={auto_ack})
channel.start_consuming()
"""


@pytest.mark.parametrize(("auto_ack", "acks_first"), [(True, False), (False, True)])
def test_a_consumer_that_loses_messages_is_reported(
    on_rabbit: NewCampaign, auto_ack: bool, acks_first: bool
) -> None:
    campaign = on_rabbit("broken")
    campaign.send(20)
    campaign.send(20, seconds=600)
    broken = subprocess.Popen(
        [sys.executable, "-c", BROKEN.format(auto_ack=auto_ack, acks_first=acks_first)],
        env={
            **os.environ,
            "PYTHONPATH": os.path.dirname(os.path.dirname(journal.__file__)),
            "URL": campaign.place.url,
            "QUEUE": campaign.queue,
            journal.JOURNAL: str(campaign.path),
        },
    )
    try:
        campaign.wait_started(21)  # so the ack before it, if there was one, has long been sent
    finally:
        broken.send_signal(signal.SIGKILL)
        broken.wait()
    report = campaign.report(patience=2.0)
    assert 20 in report.lost, "the message that was begun and never finished"
    assert not report.unexpected


def test_what_nobody_sent_is_reported(on_rabbit: NewCampaign) -> None:
    campaign = on_rabbit("stranger")
    campaign.send(2)
    campaign.sent.discard(1)
    assert campaign.report().unexpected == [1]


def test_a_message_begun_twice_is_counted(on_rabbit: NewCampaign, chronicle: StartChronicle) -> None:
    """D-1: a failed message gets one more try and then the dead letters: neither lost nor handled."""
    campaign = on_rabbit("twice")
    campaign.send(3)
    campaign.send(1, answer="false")
    process = campaign.consume(chronicle, "--until-empty")
    assert process.wait() == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.repeats) == ([], [], 1)
    assert report.dead == {3}
    assert not report.queued
