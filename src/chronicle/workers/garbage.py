"""How often Python looks for garbage: objects that only refer to one another.

It looks each time there are 700 objects more than before. A message is two dozen, so with hundreds of
messages in work it finds hardly anything but these, and looks at each of them several times. Measured with
500 syncers that wait 5 ms: a tenth of all CPU; with up to a hundred, nothing to speak of.

Rule: it is put off until there are several times as many objects as messages in work can have, and no longer,
      because a message that is garbage may be large.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OBJECTS: Final = 100  # for each message in work, with what its syncer makes of it


@contextmanager
def seldom_collected(concurrency: int) -> Iterator[None]:
    """Look for garbage as seldom as so many messages at once call for, never more often than before."""
    usual, *older = before = gc.get_threshold()
    # 0 is no number of objects: somebody does not want it to look at all.
    if usual == 0:
        yield
        return
    gc.set_threshold(max(usual, OBJECTS * concurrency), *older)
    try:
        yield
    finally:
        gc.set_threshold(*before)
