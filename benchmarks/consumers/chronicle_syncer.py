"""The syncers chronicle runs in the benchmark: do nothing, or wait 5 ms; async and sync."""

import asyncio
import time
from typing import Any

WAIT = 0.005


async def async_noop(_message: dict[str, Any]) -> bool:
    return True


async def async_wait(_message: dict[str, Any]) -> bool:
    await asyncio.sleep(WAIT)
    return True


def sync_noop(_message: dict[str, Any]) -> bool:
    return True


def sync_wait(_message: dict[str, Any]) -> bool:
    time.sleep(WAIT)
    return True
