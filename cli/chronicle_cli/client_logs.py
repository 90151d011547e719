"""The loggers of the brokers' clients: quiet, because chronicle reports a lost connection itself, once."""

from __future__ import annotations

import logging

from chronicle.transports.catalog import brokers


def quiet_clients() -> None:
    """Let them say nothing; they need many lines of their own for what is reported in one."""
    _set_level([name for broker in brokers() for name in broker.loggers], logging.CRITICAL)


def spare_bodies() -> None:
    """Let them say everything but whole bodies."""
    _set_level([name for broker in brokers() for name in broker.telltale_loggers], logging.INFO)


def _set_level(names: list[str], level: int) -> None:
    for name in names:
        logging.getLogger(name).setLevel(level)
