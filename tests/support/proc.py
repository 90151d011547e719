"""What the kernel says about a process: its threads, its open files, its memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from support.process import ChronicleProcess
from support.waiting import wait_for


def has_ended(pid: int) -> bool:
    """Also if nobody has asked how: where nobody cleans up after orphans, they stay in the list."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_seconds(pid: int) -> float:
    """The time it has computed so far, in user and kernel mode together."""
    # The name, in parentheses, may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_until_end(process: ChronicleProcess, patience: float) -> int:
    """The most memory it had resident until it ended, in bytes; it must end in time."""
    peak = 0

    def ended() -> bool:
        nonlocal peak
        with suppress(OSError, RuntimeError):
            peak = max(peak, peak_memory(process.pid))
        return not process.running

    wait_for(ended, patience, "the end of the process", every=0.01)
    return peak


def peak_memory(pid: int) -> int:
    """The most memory it ever had resident, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no memory")
