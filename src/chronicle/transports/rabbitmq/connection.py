"""pika's connection, with the deliveries taken out of the stream before pika sees them.

pika does the handshake, the heartbeats and every method but `basic.deliver`; the splitter takes those
(wire.py). Properties go out as bytes that we encoded: pika's encoder cannot carry all that its decoder, or
ours, reads (labels.py). These few lines are the only ones that reach into pika's inside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pika
from pika.connection import Connection as PikaConnection

from chronicle.transports.rabbitmq.poller import Poller
from chronicle.transports.rabbitmq.wire import Arrival, Splitter


class Encoded(pika.BasicProperties):
    """Properties that are bytes already; pika sends them as they are."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._raw = raw

    def encode(self) -> list[bytes]:
        return [self._raw]


class Connection(pika.SelectConnection):
    """A connection turned by a poller; `arrived` is what came and nobody has taken yet."""

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        poller: Poller,
        on_end: Callable[[BaseException], None],
    ) -> None:
        self.arrived: deque[Arrival] = deque()
        self.fault = ""
        self._splitter = Splitter()

        def ended(_connection: PikaConnection, error: BaseException) -> None:
            on_end(error)

        super().__init__(
            parameters,
            on_open_error_callback=ended,
            on_close_callback=ended,
            custom_ioloop=poller,  # type: ignore[arg-type]  # it wants its own class, and uses the shape
        )

    def watch(self, channel: int) -> None:
        """Take the deliveries of this channel from now on."""
        self._splitter.watch(channel)

    def emit(self, frames: bytes) -> None:
        """Send frames that are encoded already."""
        self._output_marshaled_frames([frames])

    def _on_data_available(self, data_in: bytes) -> None:
        arrivals, foreign = self._splitter.feed(data_in)
        if arrivals:
            self.arrived.extend(arrivals)
        # pika counts what it is handed and takes silence for a dead broker: count the rest for it.
        self.bytes_received += len(data_in) - len(foreign)
        self.fault = self.fault or self._splitter.fault
        if foreign:
            try:
                super()._on_data_available(foreign)
            except Exception as error:
                self.fault = type(error).__name__
                raise
