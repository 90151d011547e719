"""What a process and everything it started has used, out of /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
# Places in /proc/PID/stat, counted after the name, which may hold spaces.
SESSION, USER, SYSTEM, ENDED_USER, ENDED_SYSTEM, RESIDENT = 3, 11, 12, 13, 14, 21


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far, bytes resident now, and the most that were (added up over processes)."""

    cpu: float
    resident: int
    peak: int


def usage(session: int) -> Usage:
    """The use of all processes of a session; one that ends meanwhile is counted by its parent."""
    cpu, resident, peak = 0.0, 0, 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[SESSION]) != session:
                continue
            status = (folder / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        cpu += TICK * sum(int(fields[place]) for place in (USER, SYSTEM, ENDED_USER, ENDED_SYSTEM))
        resident += PAGE * int(fields[RESIDENT])
        peak += _peak(status)
    return Usage(cpu, resident, peak)


def _peak(status: str) -> int:
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(lines[0].split()[1]) if lines else 0
