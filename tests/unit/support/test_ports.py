"""No two servers are ever given the same port, whichever worker of a run starts them."""

from __future__ import annotations

import pytest

from support.ports import _own, free_ports


def test_no_port_is_given_out_twice() -> None:
    ports = [port for _ in range(20) for port in free_ports(3)]
    assert len(set(ports)) == 60


def test_workers_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    everything = set(_own())
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    shares = []
    for number in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        shares.append(set(_own()))
    assert set.union(*shares) == everything
    assert sum(map(len, shares)) == len(everything)
