"""`consume --order`: what it takes, and what it refuses (D-23)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import run
from support.crm import write_syncer

CONSUME = (
    "consume",
    "--queue",
    "q",
    "--syncer",
    "crm:sync",
    "--schema",
    "json",
    "--declare",
    "--until-empty",
)


@pytest.mark.parametrize("order", ["none", "field:contact.contactRef"])
def test_an_order_that_the_broker_has(tmp_path: Path, order: str) -> None:
    write_syncer(tmp_path)
    assert run(*CONSUME, "--order", order, cwd=tmp_path).code == 0
    assert run(*CONSUME, cwd=tmp_path, env={"CHRONICLE_ORDER": order}).code == 0


def test_an_order_that_it_lacks(tmp_path: Path) -> None:
    write_syncer(tmp_path)
    said = run(*CONSUME, "--order", "key", cwd=tmp_path)
    assert said.code == 2
    assert "--order key cannot be honoured by the embedded queue: its messages have no key" in said.err
    assert "it takes none, field:PATH, such as field:contact.contactRef" in said.err


@pytest.mark.parametrize("order", ["field", "field:", "colour"])
def test_what_is_no_order(tmp_path: Path, order: str) -> None:
    said = run(*CONSUME, "--order", order, cwd=tmp_path)
    assert said.code == 2
    assert "--order takes one of none, key, partition, field:PATH" in said.err
