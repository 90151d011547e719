"""The one place where lines leave (Z10): nothing a stranger wrote steers a terminal, whatever printed it."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import chronicle_cli
from chronicle.core.deadletters.moves import Why
from chronicle.core.record import dump
from chronicle.deadletters.redrive import Tally
from chronicle.errors import BrokerRefused
from chronicle.telemetry.redaction import clean_json
from chronicle_cli import report
from chronicle_cli.commands.dlq.redrive import told

# CSI, an OSC that sets the clipboard, a carriage return, C1's CSI, a reversed and an invisible text.
HOSTILE = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\rforged\x9b31m\u202egnp\u2066\u200b\U000e0041\nforged"
STEERS = ("\x1b", "\x07", "\r", "\x9b", "\u202e", "\u2066", "\u200b", "\U000e0041", "\nforged")

PRINTS = ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write")


def steering(text: str) -> list[str]:
    return [char for char in STEERS if char in text]


def test_z10_a_refusal_that_quotes_a_header_is_cleaned_on_its_way_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = Tally()
    tally.gone, tally.stays = Counter(orders=1), Counter({Why.REFUSED: 1})
    tally.refusals["else"] = BrokerRefused(f"no queue {HOSTILE}", f"create {HOSTILE}")
    unused: Any = None
    told(tally, unused, dry_run=False)
    out = capsys.readouterr().out
    assert "create \\x1b[2J" in out
    assert not steering(out)


def test_z10_lines_and_json_are_cleaned_and_json_keeps_its_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = {"reason": HOSTILE, HOSTILE: [HOSTILE]}
    report.say(HOSTILE, "next")
    report.data(dump(record))
    line, following, data = capsys.readouterr().out.splitlines()
    assert (steering(line), following, steering(data)) == ([], "next", [])
    assert json.loads(data) == record
    assert clean_json('"a\\n b"') == '"a\\n b"'


def test_z10_nothing_else_in_the_command_line_prints() -> None:
    home = Path(chronicle_cli.__file__).parent
    offences = []
    for file in home.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and (call := ast.unparse(node.func)) in PRINTS:
                offences.append(f"{file.relative_to(home)}:{node.lineno}: {call}")
    assert {offence.partition(":")[0] for offence in offences} == {"report.py"}, offences
