"""`make demo`, as somebody runs it who has already set chronicle up for something else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "docs" / "demo.sh"


def test_the_demo_ignores_what_is_exported(tmp_path: Path) -> None:
    """A CHRONICLE_URL, a limit or a syncer of other work does not reach it."""
    exported = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CHRONICLE_URL": "amqp://127.0.0.1:1/",
        "CHRONICLE_CONCURRENCY": "none",
        "CHRONICLE_MAX_MESSAGES": "1",
        "CHRONICLE_NO_SUCH": "two\nlines",
        "PROCA_URL": "amqp://127.0.0.1:1/",
    }
    done = subprocess.run(
        ["sh", DEMO], env=os.environ | exported, cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "demo.dlq: 1 dead letter of demo" in done.stdout
    assert "Nothing was lost." in done.stdout
