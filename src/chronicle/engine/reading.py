"""Reading a queue without an engine: the wait for the broker, and the end in every case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from chronicle.engine.reconnect import pause, reach
from chronicle.errors import BrokerError, ChronicleError
from chronicle.transports.seam import Closing, Reader


@contextmanager
def reading(
    reader: Reader,
    startup_timeout: float,
    tell: Callable[[str], None],
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Reader]:
    """The reader, open; an absent broker is tried again until the time is over or somebody stops it (D-9)."""

    def opened() -> None:
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
        with suppress(ChronicleError):  # what is under way says more
            reader.close()
        raise
    except BaseException:
        reader.close(Closing.DEADLINE)
        raise
    finally:
        while reader.notices:
            tell(reader.notices.popleft().text)
