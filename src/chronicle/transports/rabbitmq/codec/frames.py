"""The splitter: takes the deliveries of one channel out of what the broker sends, and leaves pika the rest.

Rule 1: a `basic.deliver` on the watched channel, its content header and its body frames become an
        arrival. Every other frame goes to pika: whole, untouched, in order. So pika never holds half a
        frame, and never sees a header table it might choke on (RB13).
Rule 2: any other content (`basic.return`) goes to pika without its body and its properties, which nobody
        looks at: pika would collect the one, however large, and choke on the others (RB13). The header that
        it gets says that there are none.
Rule 3: a method on the watched channel ends an incomplete delivery. The delivery is dropped, which loses
        nothing: it was never acknowledged, and its missing tag stops `multiple` (see acks.py).
Rule 4: when the stream makes no sense, `fault` says why, and a little of what comes then goes to pika as it
        is. pika rejects most of it but waits for more of some, so the caller checks `fault` and hangs up.
Rule 5: pika counts received bytes to see that the broker is alive, but only those it is given; the caller
        counts the rest.
Rule 6: what is kept is bounded, whatever the broker announces. A body far above the limit is passed over
        frame by frame, and its arrival says so; one that no broker could hold is a fault.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from chronicle.core.body import too_large
from chronicle.transports.rabbitmq.codec.decode import Text, text

# pika never asks for frames above 128 KiB, but RabbitMQ does not split a content header, and dead-lettering
# makes one grow; so this is not a protocol limit, only a length that cannot be real.
LARGEST_FRAME: Final = 4 * 1024 * 1024
LARGEST_BODY: Final = 512 * 1024 * 1024  # RabbitMQ takes none above this, however it is configured
# A body that is only a little too large is read, so that it goes the same way as any other bad input.
MARGIN: Final = 64 * 1024
SPILL: Final = 64 * 1024  # bytes that pika still gets after a fault

_HEAD: Final = Struct(">BHI").unpack_from
_METHOD_ID: Final = Struct(">I").unpack_from
_CONTENT: Final = Struct(">HHQ").unpack_from
_BARE_SIZE: Final = (14).to_bytes(4)  # of a content header: class, weight, body size, flags
_NO_BODY: Final = bytes(8)
_NO_PROPERTIES: Final = bytes(2)
_TAG: Final = Struct(">Q").unpack_from

_METHOD, _HEADER, _BODY = 1, 2, 3
_END: Final = 0xCE
_BASIC: Final = 60
_DELIVER: Final = 60 << 16 | 60
_CHANNEL_CLOSE: Final = (20 << 16 | 40, 20 << 16 | 41)
_ROUTES: Final = 256

Route: TypeAlias = tuple[bool, Text, Text]


class Arrival(NamedTuple):
    """One delivery as it came; `envelope` is for `decode.open_envelope`, when it is needed."""

    tag: int
    redelivered: bool
    exchange: Text
    routing_key: Text
    envelope: bytes
    body: bytes
    consumer: bytes  # its tag
    unread: str = ""  # why the body was passed over, if it was


class Splitter:
    """What one connection received, cut into arrivals and pika's share."""

    def __init__(self) -> None:
        self.fault = ""
        self._spill = SPILL
        self._channel: int | None = None
        self._max_body: int | None = None
        self._frame_max = LARGEST_FRAME
        self._held: list[bytes] = []  # the incomplete frame, as it came
        self._short = 0  # how much is missing before it is worth looking again
        self._tag = 0
        self._consumer = b""
        self._route: Route | None = None  # of the delivery under way
        self._envelope: bytes | None = None  # its content header, once that is there
        self._unread = ""  # why its body is passed over
        self._body = bytearray()
        self._missing = 0  # bytes of its body
        self._routes: dict[bytes, Route] = {}

    def watch(
        self, channel: int | None, *, max_body: int | None = None, frame_max: int = LARGEST_FRAME
    ) -> None:
        """From the next frame on, take the deliveries of this channel, or of none.

        A body far above `max_body` is not read. No frame but a content header is longer than `frame_max`.
        """
        self._channel = channel
        self._max_body = max_body
        self._frame_max = frame_max
        self._drop()

    def feed(self, data: bytes) -> tuple[list[Arrival], bytes]:
        """The arrivals that are now complete, and pika's share: whole frames, perhaps none.

        The order between the two is lost. Storing the arrivals before pika gets its share is always
        right: at worst pika then learns that their channel is gone.
        """
        if self.fault:
            spilt = data[: self._spill]
            self._spill -= len(spilt)
            return [], spilt
        if self._held:
            # Joined once per frame, not once per read: reads may be much smaller than frames.
            self._held.append(data)
            self._short -= len(data)
            if self._short > 0:
                return [], b""
            data = b"".join(self._held)
            self._held.clear()

        arrivals: list[Arrival] = []
        foreign: list[bytes] = []
        channel, frame_max = self._channel, self._frame_max
        pos, length = 0, len(data)
        while length - pos >= 7:
            kind, number, size = _HEAD(data, pos)
            start = pos + 7
            end = start + size
            if size > frame_max and (kind != _HEADER or size > LARGEST_FRAME):
                self.fault = f"a frame of {size} bytes"
                break
            if end >= length:
                break
            if data[end] != _END:
                self.fault = "a frame without its end"
                break
            if number != channel or not _METHOD <= kind <= _BODY:
                _pass_on(foreign, data, pos, end + 1)
            elif kind == _METHOD:
                if self._route is not None and not self._interrupt(data, start, size):
                    break
                if size < 4 or _METHOD_ID(data, start)[0] != _DELIVER:
                    foreign.append(data[pos : end + 1])
                elif not self._begin(data, start, end):
                    break
            elif self._route is None:
                _pass_on(foreign, data, pos, end + 1)
            elif kind == _HEADER:
                if self._envelope is not None or size < 14:
                    self.fault = "a content header out of place or cut short"
                    break
                class_id, _, missing = _CONTENT(data, start)
                if class_id != _BASIC:
                    self.fault = "a content header of another class"
                    break
                if missing > LARGEST_BODY:
                    self.fault = f"a message of {missing} bytes"
                    break
                self._envelope, self._missing = data[start + 12 : end], missing
                if self._max_body is not None and missing > self._max_body + MARGIN:
                    self._unread = too_large(missing, self._max_body)
                if not missing:
                    arrivals.append(self._complete(b""))
            elif kind == _BODY and self._envelope is not None and size <= self._missing:
                self._missing -= size
                if self._unread:
                    if not self._missing:
                        arrivals.append(self._complete(b""))
                elif self._missing or self._body:
                    self._body += data[start:end]
                    if not self._missing:
                        arrivals.append(self._complete(bytes(self._body)))
                else:
                    arrivals.append(self._complete(data[start:end]))
            else:
                self.fault = "a frame that does not belong to the content under way"
                break
            pos = end + 1

        if pos < length:
            if self.fault:
                self._drop()
                foreign.append(data[pos:])
            else:
                self._hold(data[pos:])
        return arrivals, b"".join(foreign)

    def _hold(self, rest: bytes) -> None:
        self._held.append(rest)
        frame = 8 + _HEAD(rest)[2] if len(rest) >= 7 else 7
        self._short = frame - len(rest)

    def _interrupt(self, data: bytes, start: int, size: int) -> bool:
        """Rule 3: whether the stream still makes sense after a method in the middle of a content."""
        self._drop()
        if size < 4 or _METHOD_ID(data, start)[0] not in _CHANNEL_CLOSE:
            self.fault = "a method in the middle of a content"
        return not self.fault

    def _begin(self, data: bytes, start: int, end: int) -> bool:
        """Read a `basic.deliver`: consumer tag, delivery tag, redelivered, exchange, routing key."""
        # Apart from tag and consumer tag, most deliveries of a queue look alike, so the rest is read once.
        behind_tag = start + 13 + data[start + 4] if end > start + 4 else end
        rest = data[behind_tag:end]
        route = self._routes.get(rest)
        if route is None:
            route = _route(rest)
            if route is None:
                self.fault = "a basic.deliver that cannot be read"
                return False
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            self._routes[rest] = route
        self._tag = _TAG(data, behind_tag - 8)[0]
        self._consumer = data[start + 5 : behind_tag - 8]
        self._route = route
        return True

    def _complete(self, body: bytes) -> Arrival:
        assert self._route is not None
        assert self._envelope is not None
        arrival = Arrival(self._tag, *self._route, self._envelope, body, self._consumer, self._unread)
        self._drop()
        return arrival

    def _drop(self) -> None:
        self._route = self._envelope = None
        self._unread = ""
        if self._body:
            self._body = bytearray()


def _pass_on(foreign: list[bytes], data: bytes, pos: int, end: int) -> None:
    """Give pika a whole frame that is not ours; of a content only a bare header (rule 2)."""
    kind = data[pos]
    if kind == _HEADER and end - pos >= 8 + 14:
        class_and_weight = data[pos + 7 : pos + 11]
        foreign += (data[pos : pos + 3], _BARE_SIZE, class_and_weight, _NO_BODY, _NO_PROPERTIES, b"\xce")
    elif kind != _BODY:
        foreign.append(data[pos:end])


def _route(rest: bytes) -> Route | None:
    """What a `basic.deliver` says after its tag, if it is well-formed."""
    if len(rest) < 3:
        return None
    key = 2 + rest[1]
    if len(rest) <= key or len(rest) != key + 1 + rest[key]:
        return None
    return bool(rest[0] & 1), text(rest[2:key]), text(rest[key + 1 :])
