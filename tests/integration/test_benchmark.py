"""The benchmark measures a real run from the outside, and refuses one that dropped messages."""

from __future__ import annotations

import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.installing import Http, compiled, install
from benchmarks.measure import BadRun, Run, measure
from benchmarks.peers import (
    CHRONICLE,
    CHRONICLE_KAFKA,
    CHRONICLE_REDIS,
    HELD,
    UNORDERED,
    Handler,
    Where,
    backlog,
    behind_held,
)
from benchmarks.places import AtRabbit, InFile, Place
from benchmarks.server import Server
from benchmarks.streams import GROUP, AtRedis
from benchmarks.topics import AtKafka
from support import samples
from support.fixtures import Broker, Kafka, StartRedis


@pytest.fixture
def at_rabbit(rabbit: Broker) -> Place:
    return AtRabbit(rabbit.node)


def test_a_run_is_watched_from_the_first_delivery_to_the_last_acknowledgement(at_rabbit: Place) -> None:
    body = samples.body("action-plain.json")
    sample = measure(at_rabbit, Run(install(CHRONICLE), Handler.ASYNC_NOOP, 10, 400, body, step=200))
    assert [mark.left for mark in sample.marks] == [None, 399, 200, 0]
    assert [mark.at for mark in sample.marks] == sorted(mark.at for mark in sample.marks)
    assert sample.started < sample.marks[0].at
    assert sample.peak > 0


def test_a_run_that_dropped_messages_does_not_count(at_rabbit: Place) -> None:
    run = Run(install(CHRONICLE), Handler.SYNC_NOOP, 10, 20, b"no JSON")
    with pytest.raises(BadRun, match="20 messages were dropped"):
        measure(at_rabbit, run)


def test_a_consumer_that_ends_early_is_told_with_its_last_words(at_rabbit: Place) -> None:
    run = Run(install(CHRONICLE), Handler.SYNC_NOOP, 0, 20, samples.body("action-plain.json"))
    with pytest.raises(BadRun, match=r"chronicle ended with 2: .*concurrency"):
        measure(at_rabbit, run)


def test_a_run_on_the_embedded_queue_is_watched_from_the_outside_too(tmp_path: Path) -> None:
    body = samples.body("action-plain.json")
    sample = measure(InFile(tmp_path), Run(install(CHRONICLE), Handler.ASYNC_NOOP, 10, 400, body, step=200))
    assert [mark.left for mark in sample.marks] == [None, 399, 200, 0]
    assert [mark.at for mark in sample.marks] == sorted(mark.at for mark in sample.marks)
    with pytest.raises(BadRun, match="20 messages were dropped"):
        measure(InFile(tmp_path), Run(install(CHRONICLE), Handler.SYNC_NOOP, 10, 20, b"no JSON"))


@pytest.mark.parametrize("arguments", [(), ("--until-empty",)])
def test_a_run_may_handle_the_first_of_a_long_queue(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """What waits behind the messages of a run is neither handled in its time nor counted."""
    # So many that they are not all done before somebody looks, also on a busy machine.
    peer = backlog(Where.EMBEDDED, 10_000, *arguments)
    run = Run(install(peer), Handler.ASYNC_NOOP, 10, 400, samples.body("action-plain.json"), waiting=10_000)
    sample = measure(InFile(tmp_path), run)
    assert [mark.left for mark in sample.marks] == [None, 9_999, 9_600]
    assert sample.messages == 400


def test_a_run_on_a_stream_is_watched_through_its_group(private_redis: StartRedis) -> None:
    place = AtRedis(private_redis())
    body = samples.body("action-plain.json")
    sample = measure(place, Run(install(CHRONICLE_REDIS), Handler.ASYNC_NOOP, 10, 400, body, step=200))
    assert [mark.left for mark in sample.marks] == [None, 399, 200, 0]
    assert [mark.at for mark in sample.marks] == sorted(mark.at for mark in sample.marks)
    with pytest.raises(BadRun, match="20 messages were dropped"):
        measure(place, Run(install(CHRONICLE_REDIS), Handler.SYNC_NOOP, 10, 20, b"no JSON"))


def test_what_another_consumer_holds_is_not_counted(private_redis: StartRedis) -> None:
    server = private_redis()
    peer = behind_held(500)
    run = Run(install(peer), Handler.ASYNC_NOOP, 10, 400, samples.body("action-plain.json"), waiting=500)
    sample = measure(AtRedis(server), run)
    assert [mark.left for mark in sample.marks] == [None, 499, 100]


def test_a_long_pending_list_is_made_in_the_name_of_somebody_else(private_redis: StartRedis) -> None:
    server = private_redis()
    place = AtRedis(server)
    with place.queue() as queue:
        place.fill(queue, behind_held(500).load(b"{}", queue), 500)
        with server.client() as client:
            (group,) = client.xinfo_groups(queue)
            (holder,) = client.xinfo_consumers(queue, GROUP)
        assert (group["pending"], group["lag"], holder["pending"]) == (HELD, 500, HELD)


def test_a_run_on_a_topic_is_watched_through_its_group(kafka: Kafka) -> None:
    place = AtKafka(kafka.server)
    body = samples.body("action-plain.json")
    for peer in (CHRONICLE_KAFKA, UNORDERED):
        sample = measure(place, Run(install(peer), Handler.ASYNC_NOOP, 10, 400, body, step=200))
        assert [mark.left for mark in sample.marks] == [None, 399, 200, 0]
        assert [mark.at for mark in sample.marks] == sorted(mark.at for mark in sample.marks)
    with pytest.raises(BadRun, match="20 messages were dropped"):
        measure(place, Run(install(CHRONICLE_KAFKA), Handler.SYNC_NOOP, 10, 20, b"no JSON"))


@pytest.fixture
def slow_server(tmp_path: Path) -> Iterator[Server]:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    with Server(Http(compiled("server", tmp_path), tmp_path, {}), 0.1) as server:
        yield server


def test_the_server_counts_calls_and_takes_its_time_to_answer(slow_server: Server) -> None:
    body = samples.body("action-plain.json")
    for _ in range(3):
        begun = time.monotonic()
        with urllib.request.urlopen(slow_server.url, body, timeout=10) as response:
            assert response.read() == b'{"ok":true}'
        assert time.monotonic() - begun >= 0.1
    assert slow_server.posts() == 3
    assert slow_server.cpu() >= 0


def test_a_run_that_did_not_call_the_server_does_not_count(tmp_path: Path, slow_server: Server) -> None:
    body = samples.body("action-plain.json")
    run = Run(install(CHRONICLE), Handler.SYNC_NOOP, 10, 20, body, server=slow_server)
    with pytest.raises(BadRun, match="20 messages were acknowledged after 0 calls of the server"):
        measure(InFile(tmp_path), run)
