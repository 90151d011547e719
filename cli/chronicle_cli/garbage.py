"""Python's search for garbage, put off while a command imports what it needs.

Nothing that an import creates is garbage, and there is so much of it that looking through it again and again
delays the first message. The search is not turned off: the syncer's own module is imported meanwhile, and may
create as much garbage as it likes.
"""

from __future__ import annotations

import gc
from typing import Final

OBJECTS: Final = 100_000  # more than a command and its imports create
USUAL: Final = gc.get_threshold()


def put_off() -> None:
    """Look only when there are very many new objects, or not at all, if somebody wants that."""
    if 0 < USUAL[0] < OBJECTS:
        gc.set_threshold(OBJECTS, *USUAL[1:])


def set_aside() -> None:
    """Never look among what there is now, not even when the process ends."""
    gc.freeze()


def look_again() -> None:
    """Look as often as usual, unless a module that was imported has decided otherwise."""
    if gc.get_threshold() == (OBJECTS, *USUAL[1:]):
        gc.set_threshold(*USUAL)
