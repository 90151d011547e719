"""Reading a queue without an engine: waiting for the broker, and closing the reader whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from chronicle.engine.reconnect import pause, reach
from chronicle.errors import BrokerError, ChronicleError
from chronicle.transports.seam import Closing, Reader, never


@contextmanager
def reading(
    reader: Reader,
    startup_timeout: float,
    tell: Callable[[str], None],
    stopping: Callable[[], bool] = never,
) -> Iterator[Reader]:
    """The reader, open; an absent broker is retried until the time is up or the caller stops it (D-9)."""

    def opened(_too_late: Callable[[], bool]) -> None:
        try:
            reader.open(stopping)
        except BaseException:
            reader.close(Closing.LOST)
            raise

    reach(opened, startup_timeout, tell, sleep=partial(pause, stopping=stopping))
    try:
        yield reader
        reader.close()
    except BrokerError:
        reader.close(Closing.LOST)
        raise
    except Exception:
        with suppress(ChronicleError):  # the first error says more
            reader.close()
        raise
    except BaseException:
        reader.close(Closing.DEADLINE)
        raise
    finally:
        while reader.notices:
            tell(reader.notices.popleft().text)
