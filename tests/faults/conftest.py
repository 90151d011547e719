"""What the fault tests share: campaigns on a broker, one after the other or side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.checker import AtRabbit, Campaign, InFile, NewCampaign
from support.fixtures import Broker


@pytest.fixture
def on_rabbit(rabbit: Broker, tmp_path: Path) -> NewCampaign:
    """Makes a campaign on a fresh queue of RabbitMQ, with its dead letters kept."""

    def make(word: str = "fault", *, quorum: bool = False) -> Campaign:
        queue = rabbit.queues.name(word)
        dead = rabbit.queues.declare_with_dead_letters(queue, quorum=quorum)
        return Campaign(AtRabbit(rabbit.queues), queue, tmp_path, dead)

    return make


@pytest.fixture
def in_file(tmp_path: Path) -> NewCampaign:
    """Makes a campaign on a fresh queue file."""

    def make(word: str = "fault") -> Campaign:
        return Campaign(InFile(tmp_path / f"{word}.db"), word, tmp_path, f"{word}.dlq")

    return make
