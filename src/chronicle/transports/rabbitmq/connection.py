"""pika's connection, with the deliveries taken out of the stream before pika sees them.

pika does the handshake, the heartbeats and every method but `basic.deliver`; the splitter takes those
(codec/frames.py). Properties go out as bytes that we encoded: pika's encoder cannot carry everything that its
decoder, or ours, reads (codec/encode.py). Only these few lines reach into pika's internals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import pika
from pika.adapters.utils.io_services_utils import _AsyncSSLTransport
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter
from pika.connection import Connection as PikaConnection
from pika.exceptions import StreamLostError

from chronicle.transports.rabbitmq.codec.frames import Arrival, Splitter
from chronicle.transports.rabbitmq.poller import Poller

READ_SIZE: Final = 64 * 1024


class Encoded(pika.BasicProperties):
    """Properties that are already bytes; pika sends them as they are."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.raw = raw

    def encode(self) -> list[bytes]:
        return [self.raw]


class Services(SelectorIOServicesAdapter):
    """What pika asks of the system, on our poller."""

    def getaddrinfo(self, host: Any, *args: Any, **kwargs: Any) -> Any:
        """A name in plain letters needs no codec for others, which takes two milliseconds to import."""
        plain = host.encode() if host.isascii() else host
        return super().getaddrinfo(plain, *args, **kwargs)


class Connection(pika.SelectConnection):
    """A connection turned by a poller; `arrived` is what came and was not taken yet."""

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        poller: Poller,
        on_end: Callable[[BaseException], None],
    ) -> None:
        self.arrived: deque[Arrival] = deque()
        self.fault = ""
        self._splitter = Splitter()
        self._most = 0  # arrivals that may wait here
        self._plain: Any = None  # pika's own transport, if it is one without TLS

        def ended(_connection: PikaConnection, error: BaseException) -> None:
            on_end(error)

        super().__init__(
            parameters,
            on_open_error_callback=ended,
            on_close_callback=ended,
            custom_ioloop=Services(poller),  # type: ignore[arg-type]  # it has the shape of what is asked for
        )

    def watch(self, channel: int, prefetch: int, max_body: int | None) -> None:
        """Take the deliveries of this channel from now on, and hold the broker to what was agreed upon."""
        # Twice: a broker that is merely inexact about the prefetch does no harm.
        self._most = 2 * prefetch
        self._splitter.watch(channel, max_body=max_body, frame_max=self.params.frame_max)

    def emit(self, frames: bytes) -> None:
        """Send frames that are already encoded; now, if the socket takes them."""
        self._output_marshaled_frames([frames])
        # pika would wait for the poller to say that the socket is writable, which it almost always is.
        if self._plain is not None and self._plain._tx_buffers:
            self._plain._on_socket_writable()

    def hang_up(self) -> None:
        """Close the socket with the next turn, whatever the broker says or does not say."""
        if self._transport is not None:
            # pika would take an end without a reason for a defect of its own.
            self._error = self._error or StreamLostError("hung up")
            self._transport.abort()

    def _proto_connection_made(self, transport: Any) -> None:
        # pika reads 4 KiB at a time until nothing is left; one large read a turn is a fifth of the calls.
        # TLS keeps decrypted bytes of its own, so there everything is read, and written, pika's way.
        transport._MAX_RECV_BYTES = READ_SIZE
        if not isinstance(transport, _AsyncSSLTransport):
            transport._MAX_CONSUME_BYTES = 1
            self._plain = transport
        super()._proto_connection_made(transport)

    def expect(self, places: int) -> None:
        """There may be more unacknowledged than was said before; what was sent may come for a while."""
        self._most = max(self._most, 2 * places)

    def _on_data_available(self, data_in: bytes) -> None:
        arrivals, foreign = self._splitter.feed(data_in)
        if arrivals:
            self.arrived.extend(arrivals)
            if len(self.arrived) > self._most:
                self.fault = self.fault or "far more deliveries than the prefetch allows"
        # pika counts what it is handed and takes silence for a dead broker: count the rest for it.
        self.bytes_received += len(data_in) - len(foreign)
        self.fault = self.fault or self._splitter.fault
        if foreign:
            try:
                super()._on_data_available(foreign)
            except Exception as error:
                self.fault = type(error).__name__
                raise
