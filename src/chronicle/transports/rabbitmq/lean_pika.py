"""pika, imported without asyncio.

pika imports asyncio for one of its adapters, which nobody here uses; that takes a dozen milliseconds of the
hundred and fifty until the first message. So the adapter is imported by whoever asks for it, such as a syncer
that uses pika itself.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final

MODULE: Final = "asyncio_connection"
ADAPTER: Final = f"pika.adapters.{MODULE}"
CLASS: Final = "AsyncioConnection"


def import_pika() -> None:
    """Import it, if nobody has; with asyncio, if that is there anyway."""
    if "pika" in sys.modules or "asyncio" in sys.modules:
        return
    placeholder = ModuleType(ADAPTER)
    setattr(placeholder, CLASS, None)
    sys.modules[ADAPTER] = placeholder
    try:
        adapters = import_module("pika.adapters")
    finally:
        del sys.modules[ADAPTER]
    vars(adapters).pop(CLASS, None)
    vars(adapters)["__getattr__"] = _adapter


def _adapter(name: str) -> Any:
    if name == CLASS:
        return getattr(import_module(ADAPTER), CLASS)
    if name == MODULE:
        return import_module(ADAPTER)
    raise AttributeError(f"module 'pika.adapters' has no attribute {name!r}")
