"""X7: what many workers have decoded at once is bounded, measured from outside."""

from __future__ import annotations

from pathlib import Path

from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from support.cli import run

SYNCER = """
import asyncio
from pathlib import Path

begun = 0

async def sync(message):
    global begun
    begun += 1
    before = 0
    while before < begun:  # until everybody who may be here is here
        before = begun
        await asyncio.sleep(0.5)
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:")).split()[1]
    with open("peaks", "a") as file:
        file.write(peak + chr(10))
    return True
"""
BODY = (
    b'{"schema": "x", "rows": [' + b'{"":0},' * 150_000 + b"0]}"
)  # a megabyte, and almost thirty of objects
SENT = 24


def peak(folder: Path, concurrency: int) -> int:
    """The most memory a run over these messages ever had, in bytes."""
    folder.mkdir()
    (folder / "crm.py").write_text(SYNCER)
    with LocalPublisher(Connector(f"local:{folder}/chronicle.db", "q")) as publisher:
        for _ in range(SENT):
            publisher.publish([Outgoing(BODY)])
    said = run(
        "consume", "--url", "local:chronicle.db", "--queue", "q", "--syncer", "crm:sync", "--schema", "json",
        "--concurrency", str(concurrency), "--prefetch", str(SENT), "--until-empty", cwd=folder,
        fresh=True,
    )  # fmt: skip
    assert said.code == 0, said.err
    peaks = (folder / "peaks").read_text().split()
    assert len(peaks) == SENT
    return max(map(int, peaks)) * 1024


def test_X7_decoding_takes_turns(tmp_path: Path) -> None:
    """All at once would take three times the memory; eight of these have their turn together."""
    few, many = peak(tmp_path / "few", 8), peak(tmp_path / "many", SENT)
    assert many < 1.5 * few
