"""No server outlives the process that started it, however that ended.

One shell waits beside each such process until its standard input ends, which it does with that process, and
then ends the servers it was told of: those that are left, and whose pid no other process has taken over.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import IO, Final

SCRIPT: Final = """
while read -r pid folder; do
    set -- "$@" "$pid" "$folder"
done
while [ $# -gt 0 ]; do
    case "$(readlink "/proc/$1/cwd")" in "$2"*) kill -9 "-$1" ;; esac
    shift 2
done
"""


def guard(server: subprocess.Popen[bytes], folder: Path) -> None:
    """End this server and its session with us; its working directory is in its folder."""
    told = _told()
    told.write(f"{server.pid} {folder}\n".encode())
    told.flush()


@cache
def _told() -> IO[bytes]:
    waiting = subprocess.Popen(
        ["sh", "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert waiting.stdin is not None
    return waiting.stdin
