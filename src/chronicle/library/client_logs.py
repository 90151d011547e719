"""The log lines of broker clients that chronicle itself uses: none, because it tells what happens in its own.

Rule: a program may use the same client beside chronicle. Its lines stay: only what is logged on the threads
      of a run is left out, among it everything that could quote a body.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from chronicle.transports.catalog import brokers

RUN_THREADS: Final = re.compile(r"chronicle|syncer-(\d+|loop)")


class _NotOurs(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        ours = RUN_THREADS.fullmatch(record.threadName or "")
        return ours is None or record.levelno >= logging.CRITICAL


_FILTER: Final = _NotOurs()  # one for all runs: a logger has it once, however often it is added


def quiet_clients() -> None:
    """Leave out what clients log for us. A client's loggers are there once it is imported."""
    clients = tuple(name for broker in brokers() for name in broker.loggers)
    for name in tuple(logging.root.manager.loggerDict):
        if name in clients or name.startswith(tuple(f"{client}." for client in clients)):
            logging.getLogger(name).addFilter(_FILTER)
