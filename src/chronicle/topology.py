"""A queue and what it needs, declared from code; `chronicle declare` does the same from the command line.

    from chronicle.topology import Disabled, QueueOptions, declare

    declare(url, "orders", QueueOptions(exchange="shop", routing_key="order.*"))
    declare(url, "mails", QueueOptions(exchange="shop", routing_key="mail.*", ttl=300.0))
    declare(url, "ticks", QueueOptions(exchange="shop", routing_key="tick.*", dead_letter=Disabled()))

`plan` returns what would be created, without a broker. `policy_of` is the engine's policy for failed messages
of such a queue: with MaxAttempts (five, unless `retry` says otherwise) they wait for their next try in the
retry queues of the same plan; with `RetryPolicy.NONE` they are dead-lettered at once, without retry queues.

`chronicle.subscribe` declares and consumes in one step.
"""

from __future__ import annotations

from chronicle.core.policy import OnFailure, Policy
from chronicle.core.queues import QueueType
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
    """Create what this queue needs and the broker does not have; what became of each step.

    Raises BrokerRefused, with nothing changed, if something exists but differs.
    """
    return declare_topology(Connector(url, queue, tls=tls or Tls(), declare=options or QueueOptions()))


def policy_of(options: QueueOptions) -> Policy:
    """What happens to a failed message under these options (D-1, R-003-22 to 24)."""
    if options.retry is None:
        return Policy(OnFailure.DEAD_LETTER)
    retry = options.retry
    return Policy(OnFailure.RETRY, max_attempts=retry.attempts, retry_delays=retry.delays)
