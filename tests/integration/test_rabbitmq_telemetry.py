"""What the log tells of a RabbitMQ consumer's connection, pinned: states, place, reconnects (000)."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support import samples
from support.fixtures import Broker, StartChronicle
from support.proxy import Proxy
from support.stage import Stage
from support.waiting import wait_for

BODY = samples.body("action-plain.json")
STATE_CHANGE = "rabbitmq_trigger.state_change"
OPENING = ["Connecting", "DeclaringQoS", "Consuming", "Delivering"]


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path)


def test_R_000_18_and_43_every_state_change_names_host_and_vhost(stage: Stage) -> None:
    stage.publish(BODY)
    process = stage.start("yes", "--until-empty")
    assert process.wait() == 0, process.stderr
    changes = process.lines(STATE_CHANGE)
    assert [line["to"] for line in changes] == [*OPENING, "ShuttingDown", "DrainingQueue", "Disconnected"]
    assert [line["from"] for line in changes] == ["Disconnected", *(line["to"] for line in changes[:-1])]
    port = urlsplit(stage.url).port
    assert {line["connector"] for line in process.lines()} == {f"127.0.0.1:{port}/"}
    (end,) = process.lines("consumer.stopped")
    assert end["states"] == {line["to"]: 1 for line in changes}


def test_R_000_45_a_reconnect_tells_its_tries_and_how_long_it_was_away(stage: Stage) -> None:
    with Proxy(stage.url) as proxy:
        env = {"CHRONICLE_URL": proxy.url_for(stage.url)}
        process = stage.start("yes", env=env)
        process.wait_for_line("consumer.ready")
        wait_for(proxy.cut, 30, "a connection to cut")
        wait_for(lambda: len(process.lines("consumer.ready")) == 2, 30, "ready again")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    first, again = process.lines("consumer.ready")
    assert first["connect_attempts"] == 1
    assert again["connect_attempts"] == 2
    assert 250 <= again["away_ms"] < 30_000  # the first backoff is at least a quarter of a second (D-6)
    states = [line["to"] for line in process.lines(STATE_CHANGE)]
    assert states[4:9] == ["Reconnecting", *OPENING]
    (end,) = process.lines("consumer.stopped")
    assert (end["reconnects"], end["states"]["Reconnecting"]) == (1, 1)
