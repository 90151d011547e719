"""A queue and what it needs, made from code; `chronicle declare` does the same from the command line.

    from chronicle.topology import Disabled, QueueOptions, declare

    declare(url, "orders", QueueOptions(exchange="shop", routing_key="order.*"))
    declare(url, "mails", QueueOptions(exchange="shop", routing_key="mail.*", ttl=300.0))
    declare(url, "ticks", QueueOptions(exchange="shop", routing_key="tick.*", dead_letter=Disabled()))

`plan` tells what would be made, without a broker. `policy_of` is what a failed message of such a queue gets,
for the engine: with MaxAttempts (five, unless `retry` says otherwise) its tries wait in the retry queues of
the same plan; with `retry=None` it is a dead letter at once, and there are no retry queues.
"""

from __future__ import annotations

from chronicle.core.policy import OnFailure, Policy
from chronicle.core.topology import (
    Binding,
    DeadLetterPolicy,
    Disabled,
    Done,
    Enabled,
    Exchange,
    MaxAttempts,
    Queue,
    QueueOptions,
    QueueType,
    RetryPolicy,
    Step,
    plan,
)
from chronicle.transports.catalog import declare_topology
from chronicle.transports.seam import Connector, Tls

__all__ = [
    "Binding",
    "DeadLetterPolicy",
    "Disabled",
    "Done",
    "Enabled",
    "Exchange",
    "MaxAttempts",
    "Queue",
    "QueueOptions",
    "QueueType",
    "RetryPolicy",
    "Step",
    "declare",
    "plan",
    "policy_of",
]


def declare(
    url: str, queue: str, options: QueueOptions | None = None, *, tls: Tls | None = None
) -> tuple[tuple[Step, Done], ...]:
    """Make what this queue needs and the broker does not have; what became of each step.

    Raises BrokerRefused, with nothing changed, when something is there and differs.
    """
    return declare_topology(Connector(url, queue, tls=tls or Tls(), declare=options or QueueOptions()))


def policy_of(options: QueueOptions) -> Policy:
    """What a failed message gets under these options (D-1, R-003-22 to 24)."""
    if options.retry is None:
        return Policy(OnFailure.DEAD_LETTER)
    retry = options.retry
    return Policy(OnFailure.RETRY, max_attempts=retry.attempts, retry_delays=retry.delays)
