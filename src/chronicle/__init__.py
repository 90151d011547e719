"""chronicle runs your function over a message queue, safely.

A syncer needs no more than this:

    from chronicle import DeadLetter, Drop, Retry

A program that consumes by itself has `run`, `arun` and `subscribe`; docs/library.md is their page. They are
imported when they are first used, so that a syncer does not wait for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from chronicle.core.delivery import Delivery
from chronicle.core.in_work import current_delivery
from chronicle.errors import (
    AlreadySettled,
    ChronicleError,
    DeadLetter,
    Drop,
    MessageGone,
    Retry,
    SettingError,
    SubscriptionFailed,
)

if TYPE_CHECKING:
    from chronicle.core.topology import Disabled, Enabled, MaxAttempts, QueueOptions, RetryPolicy
    from chronicle.engine.job import Ending
    from chronicle.library.event import Event
    from chronicle.library.handle import Handle
    from chronicle.library.message import Message
    from chronicle.library.routing_key import RoutingKey
    from chronicle.library.run import arun, run
    from chronicle.library.subscription import Subscription, subscribe

__all__ = [
    "AlreadySettled",
    "ChronicleError",
    "DeadLetter",
    "Delivery",
    "Disabled",
    "Drop",
    "Enabled",
    "Ending",
    "Event",
    "Handle",
    "MaxAttempts",
    "Message",
    "MessageGone",
    "QueueOptions",
    "Retry",
    "RetryPolicy",
    "RoutingKey",
    "SettingError",
    "Subscription",
    "SubscriptionFailed",
    "__version__",
    "arun",
    "current_delivery",
    "run",
    "subscribe",
]

__version__ = "0.1.0"

_LATER: Final = {
    "Disabled": "core.topology",
    "Enabled": "core.topology",
    "Ending": "engine.job",
    "Event": "library.event",
    "Handle": "library.handle",
    "MaxAttempts": "core.topology",
    "Message": "library.message",
    "QueueOptions": "core.topology",
    "RetryPolicy": "core.topology",
    "RoutingKey": "library.routing_key",
    "Subscription": "library.subscription",
    "arun": "library.run",
    "run": "library.run",
    "subscribe": "library.subscription",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"chronicle.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return __all__
