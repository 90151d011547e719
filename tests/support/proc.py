"""What the kernel says about a process: its threads, its open files, its memory."""

from __future__ import annotations

import os
from pathlib import Path


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def peak_memory(pid: int) -> int:
    """The most memory it ever had resident, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no memory")
