"""RB13, X7: random frames and headers, with a seed: never an exception, never more kept than is allowed."""

from __future__ import annotations

from random import Random
from struct import pack
from typing import Final

from chronicle.core.delivery import Envelope
from chronicle.transports.rabbitmq.codec.decode import open_envelope
from chronicle.transports.rabbitmq.codec.frames import MARGIN, SPILL, Splitter
from support.amqp import FRAME_MAX
from support.fuzz import damaged, frames, seeds, table
from support.raw_amqp import long

OURS: Final = 3
MOST: Final = 100_000
FLAGS: Final = 1 << 13  # headers, and nothing else


@seeds(20)
def test_RB13_any_header_table_is_opened_or_a_fault_of_its_own(seed: int) -> None:
    luck = Random(seed)
    for _ in range(200):
        raw = pack(">H", FLAGS) + long(table(luck))
        assert open_envelope(raw).fault == ""
        for bad in (damaged(luck, raw), luck.randbytes(luck.randrange(60)), raw[: luck.randrange(len(raw))]):
            assert isinstance(open_envelope(bad), Envelope)


@seeds(20)
def test_X7_any_frames_in_any_cut_are_split_and_nothing_is_hoarded(seed: int) -> None:
    luck = Random(seed)
    for _ in range(30):
        stream = b"".join(frames(luck, OURS, 40))
        cut, whole = Splitter(), Splitter()
        for splitter in (cut, whole):
            splitter.watch(OURS, max_body=MOST, frame_max=FRAME_MAX)
        arrivals, foreign = whole.feed(stream)
        in_pieces, at, others = [], 0, b""
        while at < len(stream):
            size = luck.choice([1, 7, 100, 4096])
            some, rest = cut.feed(stream[at : at + size])
            in_pieces += some
            others += rest
            at += size
            assert len(cut._body) <= MOST + MARGIN
        assert (in_pieces, cut.fault) == (arrivals, whole.fault)
        assert others == foreign if not cut.fault else len(others) <= len(foreign) + SPILL
