"""The syncers chronicle runs in the benchmark: do nothing, wait 5 ms, or call a server; async and sync."""

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


def __getattr__(name: str) -> Any:
    """The handlers that call a server; the others do without its client."""
    if name not in ("async_http", "sync_http"):
        raise AttributeError(name)
    import crm

    return crm.Async().post if name == "async_http" else crm.Sync().post
