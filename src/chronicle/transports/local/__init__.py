"""The embedded queue: messages in one SQLite file, shared by as many processes as like."""

from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher

__all__ = ["LocalPublisher", "LocalTransport"]
