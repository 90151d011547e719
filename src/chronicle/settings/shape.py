"""What a queue needs around it, by the options for it.

Rule: plans are imported where one is made: a run that only checks its queue starts without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.core.queues import SHORTEST, QueueType
from chronicle.errors import SettingError
from chronicle.settings.run import check_name

if TYPE_CHECKING:
    from chronicle.core.topology import QueueOptions


def check_shape(
    *,
    exchange: str | None = None,
    routing_key: str | None = None,
    ttl: float | None = None,
    dead_letter: bool = True,
    dead_letter_exchange: str | None = None,
    dead_letter_routing_key: str | None = None,
    dead_letter_queue_type: QueueType = QueueType.CLASSIC,
    queue_type: QueueType = QueueType.CLASSIC,
    durable: bool = True,
    retry_delays: tuple[float, ...] = (),
) -> QueueOptions:
    """The options for one queue, after checking the rules between them."""
    from chronicle.core.topology import Disabled, Enabled, MaxAttempts, QueueOptions

    names = {
        "--exchange": exchange,
        "--routing-key": routing_key,
        "--dead-letter-exchange": dead_letter_exchange,
        "--dead-letter-routing-key": dead_letter_routing_key,
    }
    for flag, name in names.items():
        if name is not None:
            check_name(flag, name)
    if routing_key and not exchange:
        raise SettingError("--routing-key without --exchange", "name the exchange with --exchange NAME")
    replicated = dead_letter_queue_type is QueueType.QUORUM
    own = dead_letter_exchange or dead_letter_routing_key or replicated
    if own and not dead_letter:
        raise SettingError("--no-dead-letter together with options for dead letters", "leave one of them out")
    if any(span < SHORTEST for span in (*retry_delays, *(() if ttl is None else (ttl,)))):
        raise SettingError("--ttl and --retry-delay take at least 1ms", "brokers count in milliseconds")
    if queue_type is QueueType.QUORUM and not durable:
        raise SettingError("--no-durable with --queue-type quorum", "a quorum queue is always durable")
    usual = Enabled()
    kept = Enabled(
        (lambda _: dead_letter_exchange) if dead_letter_exchange else usual.exchange,
        (lambda _: dead_letter_routing_key) if dead_letter_routing_key else usual.routing_key,
        foreign=dead_letter_exchange is not None,
        queue_type=dead_letter_queue_type,
    )
    return QueueOptions(
        exchange=exchange or "",
        routing_key=routing_key or "",
        ttl=ttl,
        # The number of tries is up to consume; here every delay gets its queue.
        retry=MaxAttempts(len(retry_delays) + 1, retry_delays) if retry_delays else None,
        dead_letter=kept if dead_letter else Disabled(),
        queue_type=queue_type,
        durable=durable,
    )
