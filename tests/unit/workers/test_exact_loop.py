"""The event loop of async syncers: its waits are as long as they were asked for."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from time import perf_counter

import pytest

from chronicle.workers import exact_loop
from chronicle.workers.exact_loop import ExactSelector, new_loop


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def shortest(selector: selectors.BaseSelector) -> float:
    """The shortest of many waits of 0.2 ms, so that a busy machine does not matter."""
    waits = []
    for _ in range(50):
        begun = perf_counter()
        assert selector.select(0.0002) == []
        waits.append(perf_counter() - begun)
    return min(waits)


def test_a_wait_is_not_rounded_up_to_a_millisecond() -> None:
    with ExactSelector() as exact, selectors.EpollSelector() as rounding:
        assert 0.0002 <= shortest(exact) < 0.001 <= shortest(rounding)


@pytest.mark.parametrize("timeout", [None, 10.0, 0.04, 0.0, -1.0])
def test_a_wait_ends_with_what_is_ready(
    pair: tuple[socket.socket, socket.socket], timeout: float | None
) -> None:
    with ExactSelector() as selector:
        selector.register(pair[0], selectors.EVENT_READ)
        pair[1].send(b"!")
        [(key, events)] = selector.select(timeout)
        assert (key.fileobj, events) == (pair[0], selectors.EVENT_READ)


def test_a_descriptor_that_select_cannot_take_is_left_to_epoll(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_loop, "HIGHEST", -1)
    with ExactSelector() as selector:
        selector.register(pair[0], selectors.EVENT_READ)
        assert selector.select(0.001) == []
        pair[1].send(b"!")
        assert len(selector.select(0.04)) == 1


def test_syncers_run_on_it() -> None:
    loop = new_loop()
    try:
        assert loop.run_until_complete(_answer()) == 42
    finally:
        loop.close()


async def _answer() -> int:
    return 42
