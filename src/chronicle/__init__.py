"""chronicle runs your function over a message queue, safely.

A syncer needs no more than this:

    from chronicle import DeadLetter, Drop, Retry
"""

from __future__ import annotations

from chronicle.core.delivery import Delivery
from chronicle.core.in_work import current_delivery
from chronicle.errors import ChronicleError, DeadLetter, Drop, Retry

__all__ = ["ChronicleError", "DeadLetter", "Delivery", "Drop", "Retry", "__version__", "current_delivery"]

__version__ = "0.1.0"
