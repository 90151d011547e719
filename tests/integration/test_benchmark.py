"""The benchmark measures a real run from the outside, and refuses one that dropped messages."""

from __future__ import annotations

import pytest

from benchmarks.installing import install
from benchmarks.measure import BadRun, Run, measure, set_up
from benchmarks.peers import CHRONICLE, Handler
from support import samples
from support.fixtures import Broker
from support.rabbit import RabbitNode


@pytest.fixture
def node(rabbit: Broker) -> RabbitNode:
    set_up(rabbit.node)
    return rabbit.node


def test_a_run_is_watched_from_the_first_delivery_to_the_last_acknowledgement(node: RabbitNode) -> None:
    body = samples.body("action-plain.json")
    sample = measure(node, Run(install(CHRONICLE), Handler.ASYNC_NOOP, 10, 400, body, step=200))
    assert [mark.left for mark in sample.marks] == [None, 399, 200, 0]
    assert [mark.at for mark in sample.marks] == sorted(mark.at for mark in sample.marks)
    assert sample.started < sample.marks[0].at
    assert sample.peak > 0


def test_a_run_that_dropped_messages_does_not_count(node: RabbitNode) -> None:
    run = Run(install(CHRONICLE), Handler.SYNC_NOOP, 10, 20, b"no JSON")
    with pytest.raises(BadRun, match="20 messages were dropped"):
        measure(node, run)


def test_a_consumer_that_ends_early_is_told_with_its_last_words(node: RabbitNode) -> None:
    run = Run(install(CHRONICLE), Handler.SYNC_NOOP, 0, 20, samples.body("action-plain.json"))
    with pytest.raises(BadRun, match=r"chronicle ended with 2: .*concurrency"):
        measure(node, run)
