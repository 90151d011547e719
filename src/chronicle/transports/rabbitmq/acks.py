"""The tags of one channel, and the frames that settle them.

Rule 1 (RB17): `multiple` is only ever sent for a tag below which every tag of the channel is settled or
        finished successfully. Nacks of the same turn go out first, so they are settled by then.
Rule 2: a tag that is not finished stays open and stops `multiple` there; the tags above go out singly.
Rule 3: tags rise by one. A tag that never came (a delivery dropped on the way, one that pika fetched) stays
        open forever.
Rule 4: a ledger ends with its channel; tags of another channel mean other messages (RB2).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from chronicle.errors import ConnectionLost

_SETTLE: Final = Struct(">BHIIQBB").pack
_METHOD: Final = 1
_SIZE: Final = 13
_ACK: Final = 60 << 16 | 80
_NACK: Final = 60 << 16 | 120
_MULTIPLE: Final = 1
_REQUEUE: Final = 2
_END: Final = 0xCE


def ack_frame(channel: int, tag: int, multiple: bool) -> bytes:
    """One `basic.ack`."""
    return _SETTLE(_METHOD, channel, _SIZE, _ACK, tag, _MULTIPLE if multiple else 0, _END)


def nack_frame(channel: int, tag: int, requeue: bool) -> bytes:
    """One `basic.nack` for this tag alone."""
    return _SETTLE(_METHOD, channel, _SIZE, _NACK, tag, _REQUEUE if requeue else 0, _END)


class TagLedger:
    """Open and finished tags of one channel, settled with as few frames as is safe."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._open: set[int] = set()
        self._acks: list[int] = []
        self._nacks: list[tuple[int, bool]] = []
        self.newest = 0  # the last tag that came
        self._unbroken = 0  # up to here every tag came
        self._edge = 1  # below here nothing is open

    def __contains__(self, tag: int) -> bool:
        """Whether the tag came and is not finished."""
        return tag in self._open

    def __len__(self) -> int:
        """How many came and are not finished."""
        return len(self._open)

    def delivered(self, tag: int) -> None:
        """A delivery came; its tag is open. Raises ConnectionLost when the broker's count is off."""
        if tag <= self.newest:
            raise ConnectionLost("the broker used a delivery tag twice")
        self.newest = tag
        if tag == self._unbroken + 1:
            self._unbroken = tag
        self._open.add(tag)

    def ack(self, tag: int) -> bool:
        """Handled: acknowledge it with the next flush. False if the tag is not open; nothing is sent."""
        if tag not in self._open:
            return False
        self._open.remove(tag)
        self._acks.append(tag)
        return True

    def nack(self, tag: int, requeue: bool) -> bool:
        """Return it, or let the broker dead-letter it. False if the tag is not open."""
        if tag not in self._open:
            return False
        self._open.remove(tag)
        self._nacks.append((tag, requeue))
        return True

    def flush(self) -> bytes:
        """The frames for all that was finished since the last flush, to be sent in one piece."""
        channel, acks = self._channel, self._acks
        edge = self._edge
        while edge <= self._unbroken and edge not in self._open:
            edge += 1
        self._edge = edge

        frames = [nack_frame(channel, tag, requeue) for tag, requeue in self._nacks]
        prefix = [tag for tag in acks if tag < edge]
        if len(prefix) > 1:
            frames.append(ack_frame(channel, max(prefix), True))
            acks = [tag for tag in acks if tag >= edge]
        frames.extend([ack_frame(channel, tag, False) for tag in acks])
        self._acks, self._nacks = [], []
        return b"".join(frames)
