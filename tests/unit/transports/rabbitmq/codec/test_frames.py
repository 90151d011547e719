"""The splitter against pika's own frames: nothing lost, nothing taken that is pika's (performance.md 2)."""

from __future__ import annotations

import struct
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.transports.rabbitmq.codec.decode import open_envelope
from chronicle.transports.rabbitmq.codec.frames import LARGEST_FRAME, Arrival, Splitter
from support.amqp import content, header, heartbeat, method, spec, taken_apart

OURS = 3
OTHER = 4
SMALL = 10  # octets of body per frame where a body should span several


def deliver(tag: int, redelivered: bool = False, exchange: Any = "proca", key: Any = "cus.12") -> Any:
    return spec.Basic.Deliver("ctag-1", tag, redelivered, exchange, key)


def ours(tag: int, body: bytes = b"{}", largest: int = SMALL, **properties: Any) -> list[bytes]:
    return content(OURS, deliver(tag), body, largest, **properties)


def splitter() -> Splitter:
    watching = Splitter()
    watching.watch(OURS)
    return watching


def fed(*pieces: bytes, into: Splitter | None = None) -> tuple[list[Arrival], bytes, str]:
    """All arrivals, all foreign bytes and the fault after these reads."""
    watching = into or splitter()
    arrivals: list[Arrival] = []
    foreign = b""
    for piece in pieces:
        some, rest = watching.feed(piece)
        arrivals += some
        foreign += rest
        assert watching.fault or walk(rest)[1] == b"", "half a frame for pika"
    return arrivals, foreign, watching.fault


def facts(arrivals: list[Arrival]) -> list[tuple[int, bytes]]:
    return [(arrival.tag, arrival.body) for arrival in arrivals]


def conversation() -> tuple[bytes, list[tuple[int, bytes]], bytes]:
    """Everything a broker says, mixed; the arrivals in it, and pika's share."""
    a = ours(1, b"a" * 25, content_type="application/json", headers={"x-a": [1, {"b": None}]})
    b = ours(2, b"")
    c = ours(3, b"c" * SMALL)
    theirs = content(OTHER, deliver(1), b"t" * 15, SMALL, headers={"a": 1})
    returned = content(OURS, spec.Basic.Return(312, "NO_ROUTE", "", "q"), b"r" * 15, SMALL)
    got = content(OURS, spec.Basic.GetOk(9, False, "", "q", 0), b"")
    consume_ok = method(OURS, spec.Basic.ConsumeOk("ctag-1"))
    cancel = method(OURS, spec.Basic.Cancel("ctag-1", True))
    story = [
        (consume_ok, False), (a[0], True), (theirs[0], False), (a[1], True), (heartbeat(), False),
        (theirs[1], False), (a[2], True), (theirs[2], False), (a[3], True), (theirs[3], False), (a[4], True),
        *((frame, False) for frame in returned), *((frame, True) for frame in b),
        *((frame, False) for frame in got), *((frame, True) for frame in c), (cancel, False),
    ]  # fmt: skip
    stream = b"".join(frame for frame, _ in story)
    foreign = b"".join(pikas(frame) for frame, is_ours in story if not is_ours)
    return stream, [(1, b"a" * 25), (2, b""), (3, b"c" * SMALL)], foreign


def test_a_delivery_says_what_pika_would_say() -> None:
    properties: dict[str, Any] = {"content_type": "text/plain", "headers": {"x": 1}, "delivery_mode": 2}
    stream = b"".join(content(OURS, deliver(7, True), b"body", **properties))
    arrivals, foreign, fault = fed(stream)
    (arrival,) = arrivals
    theirs = taken_apart(stream)
    assert arrival.tag == theirs[0].method.delivery_tag
    assert arrival.redelivered is theirs[0].method.redelivered is True
    assert arrival.exchange == theirs[0].method.exchange
    assert arrival.routing_key == theirs[0].method.routing_key
    assert arrival.body == theirs[2].fragment
    envelope = open_envelope(arrival.envelope)
    assert envelope.headers == theirs[1].properties.headers
    assert envelope.properties == {"content_type": "text/plain", "delivery_mode": 2}
    assert (foreign, fault) == (b"", "")


def test_names_that_are_not_utf_8_stay_bytes() -> None:
    arrivals, _, _ = fed(b"".join(content(OURS, deliver(1, exchange=b"\xff", key="ключ"), b"")))
    assert (arrivals[0].exchange, arrivals[0].routing_key) == (b"\xff", "ключ")


def test_a_conversation_splits_the_same_wherever_it_is_cut() -> None:
    stream, expected, foreign = conversation()
    for cut in range(len(stream) + 1):
        arrivals, rest, fault = fed(stream[:cut], stream[cut:])
        assert facts(arrivals) == expected
        assert (rest, fault) == (foreign, "")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 64])
def test_F14_a_conversation_in_tiny_reads(size: int) -> None:
    stream, expected, foreign = conversation()
    arrivals, rest, fault = fed(*(stream[at : at + size] for at in range(0, len(stream), size)))
    assert facts(arrivals) == expected
    assert (rest, fault) == (foreign, "")


def test_pika_reads_its_share() -> None:
    stream, _, _ = conversation()
    names = [getattr(frame, "method", frame).NAME for frame in taken_apart(fed(stream)[1])]
    assert names == [
        "Basic.ConsumeOk", "Basic.Deliver", "Heartbeat", "Header",
        "Basic.Return", "Header", "Basic.GetOk", "Header", "Basic.Cancel",
    ]  # fmt: skip


def test_without_a_channel_everything_is_pikas() -> None:
    stream, _, _ = conversation()
    share = b"".join(map(pikas, walk(stream)[0]))
    assert fed(stream, into=Splitter()) == ([], share, "")
    watching = splitter()
    watching.watch(None)
    assert fed(stream, into=watching) == ([], share, "")


def poison() -> list[bytes]:
    """Headers of two octets of body: a timestamp in milliseconds, a table 2000 deep, a name not in UTF-8."""
    deep = b""
    for _ in range(2000):
        deep = b"\x01kF" + struct.pack(">I", len(deep)) + deep
    tables = [b"\x02atT" + struct.pack(">Q", 1_700_000_000_000), deep, b"\x01\xffS\x00\x00\x00\x01\xff"]
    return [frame(2, struct.pack(">HHQHI", 60, 0, 2, 1 << 13, len(table)) + table) for table in tables]


def test_RB13_poison_headers_never_reach_pika_and_the_next_message_arrives() -> None:
    """G6."""
    stream = b""
    for tag, bad in enumerate(poison(), 1):
        method_frame, _, *body = ours(tag)
        stream += b"".join([method_frame, bad, *body])
    arrivals, foreign, fault = fed(stream + b"".join(ours(4)))
    assert [arrival.tag for arrival in arrivals] == [1, 2, 3, 4]
    assert (foreign, fault) == (b"", "")
    opened = [open_envelope(arrival.envelope) for arrival in arrivals]
    assert [envelope.headers for envelope in opened] == [
        {"at": 1_700_000_000_000},
        {},
        {b"\xff": b"\xff"},
        {},
    ]
    assert [bool(envelope.fault) for envelope in opened] == [False, True, False, False]


def test_RB13_pika_reads_a_return_whatever_its_headers_are() -> None:
    """Rule 2: it gets no properties of a content that is not ours, and what comes behind it."""
    back = spec.Basic.Return(312, "NO_ROUTE", "", "q")
    for bad in poison():
        returned, _, *body = content(OURS, back, b"{}")
        share = taken_apart(fed(b"".join([returned, bad, *body, heartbeat()]))[1])
        assert [getattr(piece, "method", piece).NAME for piece in share] == [
            "Basic.Return", "Header", "Heartbeat"
        ]  # fmt: skip
        assert (share[1].body_size, share[1].properties) == (0, spec.BasicProperties())


@pytest.mark.parametrize("size", [4096, 65536])
def test_G1_a_body_of_16_mib_in_frames_of_128_kib(size: int) -> None:
    body = bytes(range(256)) * (16 * 1024 * 4)
    stream = b"".join(content(OURS, deliver(1), body)) + heartbeat()
    watching = splitter()
    arrivals = []
    foreign = []
    for at in range(0, len(stream), size):
        some, rest = watching.feed(stream[at : at + size])
        arrivals += some
        foreign.append(rest)
    assert [arrival.body == body for arrival in arrivals] == [True]
    assert b"".join(foreign) == heartbeat()


def test_a_channel_close_in_the_middle_of_a_content_is_passed_on_and_the_stream_goes_on() -> None:
    close = method(OURS, spec.Channel.Close(406, "PRECONDITION_FAILED", 60, 80))
    whole = ours(1, b"x" * 25)
    for said in range(1, len(whole)):
        arrivals, foreign, fault = fed(b"".join(whole[:said]) + close + b"".join(ours(2)))
        assert facts(arrivals) == [(2, b"{}")]
        assert (foreign, fault) == (close, "")


def test_any_other_method_in_the_middle_of_a_content_is_passed_on_and_a_fault() -> None:
    rest = method(OURS, spec.Basic.Cancel("ctag-1", True)) + b"".join(ours(2))
    arrivals, foreign, fault = fed(b"".join(ours(1, b"x" * 25)[:3]) + rest)
    assert (arrivals, foreign) == ([], rest)
    assert fault == "a method in the middle of a content"


def frame(kind: int, payload: bytes, end: int = 0xCE) -> bytes:
    return struct.pack(">BHI", kind, OURS, len(payload)) + payload + bytes([end])


BEGUN = method(OURS, deliver(2))


@pytest.mark.parametrize(
    ("begun", "bad"),
    [
        (b"", frame(1, b"\x00\x3c\x00\x50" + bytes(9), end=0)),
        (b"", b"AMQP\x00\x00\x09\x01"),
        (b"", struct.pack(">BHI", 3, OTHER, LARGEST_FRAME + 1)),
        (b"", frame(1, b"\x00\x3c\x00\x3c")),
        (b"", frame(1, b"\x00\x3c\x00\x3c\xff" + bytes(20))),
        (b"", frame(1, b"\x00\x3c\x00\x3c\x00" + bytes(8) + b"\x00\x00\x05key")),
        (b"", frame(1, b"\x00\x3c\x00\x3c\x00" + bytes(8) + b"\x00\x00\x00more")),
        (BEGUN, frame(3, b"body before its header")),
        (BEGUN, frame(2, bytes(13))),
        (BEGUN, frame(2, struct.pack(">HHQH", 61, 0, 1, 0))),
        (BEGUN + header(OURS, 2), header(OURS, 2)),
        (BEGUN + header(OURS, 2), frame(3, b"too long")),
    ],
)
def test_a_stream_without_sense_goes_to_pika_from_there_on(begun: bytes, bad: bytes) -> None:
    good, after = b"".join(ours(1)), heartbeat() + b"".join(ours(3))
    watching = splitter()
    arrivals, foreign, fault = fed(good + heartbeat() + begun + bad + after, into=watching)
    assert facts(arrivals) == [(1, b"{}")]
    assert foreign == heartbeat() + bad + after
    assert fault
    assert watching.feed(b"whatever comes") == ([], b"whatever comes")


def test_a_content_header_larger_than_frame_max_arrives() -> None:
    """RabbitMQ does not split a content header, whatever was agreed upon."""
    arrivals, _, fault = fed(b"".join(ours(1, headers={"x": "y" * 200_000})))
    assert (facts(arrivals), fault) == ([(1, b"{}")], "")


def test_more_routing_keys_than_are_remembered() -> None:
    """Memory does not grow with the number of routing keys."""
    stream = b"".join(chain(*(content(OURS, deliver(n, key=f"key.{n}"), b"") for n in range(1, 1001))))
    watching = splitter()
    arrivals, _, _ = fed(stream, into=watching)
    assert [arrival.routing_key for arrival in arrivals] == [f"key.{n}" for n in range(1, 1001)]
    assert max(len(kept) for kept in vars(watching).values() if isinstance(kept, dict | list)) <= 256


def test_empty_body_frames_do_no_harm() -> None:
    stream = method(OURS, deliver(1)) + header(OURS, 2) + frame(3, b"") + frame(3, b"{}")
    assert facts(fed(stream)[0]) == [(1, b"{}")]


threads = st.lists(
    st.one_of(
        st.binary(max_size=35).map(lambda body: ("ours", body)),
        st.binary(max_size=35).map(lambda body: ("returned", body)),
        st.sampled_from([("consume-ok", b""), ("ack", b"")]),
    ),
    max_size=8,
)
elsewhere = st.lists(st.binary(max_size=35), max_size=5)


@given(data=st.data(), mine=threads, others=elsewhere)
def test_any_interleaving_cut_anywhere_accounts_for_every_frame(
    data: st.DataObject, mine: list[tuple[str, bytes]], others: list[bytes]
) -> None:
    on_ours: list[tuple[bytes, bool]] = []
    expected = []
    for tag, (what, body) in enumerate(mine, 1):
        if what == "ours":
            on_ours += [(piece, True) for piece in ours(tag, body, message_id=str(tag))]
            expected.append((tag, body))
        elif what == "returned":
            returned = content(OURS, spec.Basic.Return(312, "NO_ROUTE", "", "q"), body, SMALL)
            on_ours += [(piece, False) for piece in returned]
        else:
            word = spec.Basic.ConsumeOk("c") if what == "consume-ok" else spec.Basic.Ack(tag, True)
            on_ours.append((method(OURS, word), False))
    on_others = [(piece, False) for body in others for piece in content(OTHER, deliver(1), body, SMALL)]
    story = []
    while on_ours or on_others:
        story.append((data.draw(st.sampled_from([side for side in (on_ours, on_others) if side]))).pop(0))
    stream = b"".join(piece for piece, _ in story)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    arrivals, foreign, fault = fed(*(stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])))
    assert facts(arrivals) == expected
    assert [open_envelope(arrival.envelope).properties for arrival in arrivals] == [
        {"message_id": str(tag)} for tag, _ in expected
    ]
    assert foreign == b"".join(pikas(piece) for piece, is_ours in story if not is_ours)
    assert fault == ""


def check_garbage(stream: bytes, cuts: list[int]) -> None:
    """Never an exception, the same however it is cut, and no frame missing that cannot be an arrival's."""
    arrivals, foreign, fault = fed(stream)
    assert fed(*(stream[a:b] for a, b in pairwise([0, *sorted(cuts), len(stream)]))) == (
        arrivals,
        foreign,
        fault,
    )
    walked, _ = walk(stream)
    if not fault:
        assert is_share(foreign, walked)
        taken = sum(map(len, walked)) - len(foreign)
        assert taken >= sum(len(arrival.body) + len(arrival.envelope) for arrival in arrivals)
        return
    # The fault stands at the beginning of some frame: from there on pika got everything.
    starts = [sum(map(len, walked[:count])) for count in range(len(walked) + 1)]
    assert any(
        foreign.endswith(stream[start:])
        and is_share(foreign[: len(foreign) - len(stream) + start], walked[:count])
        for count, start in enumerate(starts)
    )


def is_share(foreign: bytes, frames: list[bytes]) -> bool:
    """Whether pika got its share of all of these that cannot be part of an arrival, in order."""
    passed, rest = walk(foreign)
    return not rest and [one for one in passed if not is_content(one)] == [
        share for one in frames if not is_content(one) and (share := pikas(one))
    ]


def pikas(one: bytes) -> bytes:
    """What pika gets of a frame that is not ours: no body, and a header with no size and no properties."""
    if one[0] == 3:
        return b""
    if one[0] == 2 and len(one) >= 22:
        return one[:3] + struct.pack(">I", 14) + one[7:11] + bytes(8) + bytes(2) + b"\xce"
    return one


def walk(stream: bytes) -> tuple[list[bytes], bytes]:
    """The whole frames at the head of a stream, read naively, and what is left."""
    frames = []
    while len(stream) >= 8:
        end = 8 + struct.unpack_from(">I", stream, 3)[0]
        if end > len(stream) or stream[end - 1] != 0xCE:
            break
        frames.append(stream[:end])
        stream = stream[end:]
    return frames, stream


def is_content(one: bytes) -> bool:
    """Whether a frame may be part of an arrival."""
    kind, channel = struct.unpack_from(">BH", one)
    return channel == OURS and (kind in (2, 3) or (kind == 1 and one[7:11] == b"\x00\x3c\x00\x3c"))


@given(stream=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=6))
def test_garbage_never_raises(stream: bytes, cuts: list[int]) -> None:
    check_garbage(stream, [min(cut, len(stream)) for cut in cuts])


@given(data=st.data())
def test_a_damaged_conversation_never_raises_and_keeps_pikas_share(data: st.DataObject) -> None:
    stream = bytearray(conversation()[0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(stream) - 1))
        match data.draw(st.sampled_from(["change", "remove", "insert"])):
            case "change":
                stream[at] = data.draw(st.integers(0, 255))
            case "remove":
                del stream[at]
            case _:
                stream.insert(at, data.draw(st.integers(0, 255)))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    check_garbage(bytes(stream), cuts)
