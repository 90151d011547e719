"""A test that hangs fails by name, and the tests after it still run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
HANGING = """
import threading
from support import watchdog

watchdog.LIMIT, watchdog.AGAIN, watchdog.LAST = {limits}


def test_that_hangs():
    if {stubborn}:
        while True:
            try:
                threading.Event().wait()
            except BaseException:
                pass
    threading.Event().wait()


def test_after_it(luck):
    assert luck.random() < 0
"""


def run(folder: Path, limits: str, stubborn: bool, *options: str) -> str:
    (folder / "test_hanging.py").write_text(HANGING.format(limits=limits, stubborn=stubborn))
    plugins = ("-p", "support.evidence", "-p", "support.watchdog")
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *plugins, *options]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "CHRONICLE_TEST_SEED": "42"}
    done = subprocess.run(
        [*command, "test_hanging.py"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stdout + done.stderr


def test_a_hanging_test_fails_with_its_stack_and_its_seed(tmp_path: Path) -> None:
    said = run(tmp_path, "0.3, 5, 30", False)
    assert "still ran after 0.3 s" in said
    assert "threading.Event().wait()" in said
    assert "CHRONICLE_TEST_SEED=42" in said
    assert "2 failed" in said


def test_a_test_that_cannot_even_fail_ends_its_worker_and_not_the_run(tmp_path: Path) -> None:
    said = run(tmp_path, "0.2, 0.2, 1", True, "-n", "1")
    assert "crashed while running 'test_hanging.py::test_that_hangs'" in said
    assert "test_after_it" in said
