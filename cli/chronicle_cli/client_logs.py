"""The loggers of the broker clients: quiet, because chronicle reports a lost connection itself, once."""

from __future__ import annotations

import logging

from chronicle.transports.catalog import brokers


def quiet_clients() -> None:
    """Silence them; they log many lines for what chronicle reports in one."""
    _set_level([name for broker in brokers() for name in broker.loggers], logging.CRITICAL)


def spare_bodies() -> None:
    """Let them log everything except message bodies."""
    _set_level([name for broker in brokers() for name in broker.telltale_loggers], logging.INFO)


def _set_level(names: list[str], level: int) -> None:
    for name in names:
        logging.getLogger(name).setLevel(level)
