"""Every module imports what it needs: each can be the first that is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support import forking

PARTS: Final = 6  # for as many workers
# In forks of one interpreter that has none of chronicle's modules, but the libraries: they take the time.
PROGRAM: Final = """
import asyncio, click, importlib, logging, os, sqlite3, sys, traceback
import nacl.public, pika, redis, rich.live, rich.table
assert not any(name.partition(".")[0].startswith("chronicle") for name in sys.modules)
failed = []
for name in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        failed.append(name)
sys.exit(f"not alone: {', '.join(failed)}" if failed else 0)
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_every_module_can_be_imported_alone(tmp_path: Path, part: int) -> None:
    names = list(forking.modules())[part::PARTS]
    assert len(names) > 100 // PARTS
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
