"""A syncer that does what its message says, written into a test's folder for the real command to load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

SOURCE: Final = '''
import time
from pathlib import Path
import chronicle

class Gone(RuntimeError):
    """Its text holds the person."""

def sync(message, delivery):
    with open("seen", "a") as seen:
        seen.write(f"{message['do']} {delivery.redelivered}\\n")
    match message["do"]:
        case "yes":
            return True
        case "no":
            return False
        case "nothing":
            return None
        case "later":
            return delivery.redelivered
        case "raise":
            raise Gone(f"cannot reach {message['email']}")
        case "drop":
            raise chronicle.Drop("test data")
        case "dead":
            raise chronicle.DeadLetter(f"no list for {message['email']}")
        case "retry":
            if not delivery.redelivered:
                raise chronicle.Retry(after=0.01)
            return True
        case "wait":
            while not Path("go").exists():
                time.sleep(0.01)
            return True

class Broken:
    def __enter__(self):
        raise OSError("no route")
    def __exit__(self, *exc): ...
    def __call__(self, message): ...
'''
CANARY: Final = "zofia.canary@example.org"


def write_syncer(folder: Path) -> None:
    (folder / "crm.py").write_text(SOURCE)


def told(what: str) -> dict[str, Any]:
    """A message that says what to do, about somebody who must not show up anywhere."""
    return {"do": what, "email": CANARY}


def write_lines(path: Path, *whats: str) -> Path:
    path.write_text("".join(json.dumps(told(what)) + "\n" for what in whats))
    return path


def seen(folder: Path) -> list[str]:
    """What the syncer was asked to do, in order, and whether it was a second try."""
    path = folder / "seen"
    return path.read_text().splitlines() if path.exists() else []
