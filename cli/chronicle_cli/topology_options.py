"""The options about a queue's topology, and the rules between them.

Rule 1: an option that has no effect on this broker is refused on the command line, as any other broker's is
        (given.py); as a variable it is allowed.
Rule 2: plans are imported where one is made: a `consume` that only checks its queue starts without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from chronicle.core.policy import OnFailure, Policy
from chronicle.core.queues import QueueType
from chronicle.errors import SettingError
from chronicle.settings.run import Where
from chronicle.settings.shape import check_shape
from chronicle.transports.broker import Broker
from chronicle_cli.broker_url import has_password
from chronicle_cli.given import refuse_typed, typed
from chronicle_cli.help import Group, option, stack
from chronicle_cli.params import SPAN, OneOf

if TYPE_CHECKING:
    from chronicle.core.topology import QueueOptions

TYPES: Final = OneOf(QueueType)

exchange = option(
    Group.TOPOLOGY, "--exchange", metavar="NAME", envvar="CHRONICLE_EXCHANGE",
    help="RabbitMQ: the main exchange, to which the queue is bound. An existing one may be of any type; a "
    "missing one is created as a topic exchange.  [default: none, messages are addressed to the queue by "
    "name]",
)  # fmt: skip
routing_key = option(
    Group.TOPOLOGY, "--routing-key", metavar="KEY", envvar="CHRONICLE_ROUTING_KEY",
    help="RabbitMQ: which messages of the exchange the queue gets, such as order.*.  "
    "[default: the queue's name]",
)  # fmt: skip
ttl = option(
    Group.TOPOLOGY, "--ttl", type=SPAN, metavar="DURATION", envvar="CHRONICLE_TTL",
    help="RabbitMQ: how long a message may wait in the queue before it is dead-lettered.  [default: forever]",
)  # fmt: skip
dead_letter = option(
    Group.TOPOLOGY, "--dead-letter/--no-dead-letter", default=True, envvar="CHRONICLE_DEAD_LETTER",
    help="RabbitMQ: keep dead letters, in QUEUE.dlq. Otherwise the broker deletes failed messages.",
)  # fmt: skip
dead_letter_exchange = option(
    Group.TOPOLOGY, "--dead-letter-exchange", metavar="NAME", envvar="CHRONICLE_DEAD_LETTER_EXCHANGE",
    help="RabbitMQ: another dead-letter exchange; an existing one may be of any type.  "
    "[default: EXCHANGE.dlx, or QUEUE.dlx without an exchange]",
)  # fmt: skip
dead_letter_routing_key = option(
    Group.TOPOLOGY, "--dead-letter-routing-key", metavar="KEY", envvar="CHRONICLE_DEAD_LETTER_ROUTING_KEY",
    help="RabbitMQ: another routing key for dead letters.  [default: QUEUE.dlq]",
)  # fmt: skip
dead_letter_queue_type = option(
    Group.TOPOLOGY, "--dead-letter-queue-type", type=TYPES, metavar=TYPES.metavar,
    default=QueueType.CLASSIC.value, envvar="CHRONICLE_DEAD_LETTER_QUEUE_TYPE",
    help="RabbitMQ: the type of QUEUE.dlq. A quorum queue counts every delivery of a message, and "
    "drops it beyond its limit.",
)  # fmt: skip
queue_type = option(
    Group.TOPOLOGY, "--queue-type", type=TYPES, metavar=TYPES.metavar, default=QueueType.CLASSIC.value,
    envvar="CHRONICLE_QUEUE_TYPE",
    help="RabbitMQ: quorum: replicated, and a dead letter leaves it only after it has safely arrived. "
    "classic: the broker's default queue.",
)  # fmt: skip
durable = option(
    Group.TOPOLOGY, "--durable/--no-durable", default=True, envvar="CHRONICLE_DURABLE",
    help="RabbitMQ: whether the queue survives a broker restart. Its dead-letter and retry queues always do.",
)  # fmt: skip
shape = stack(
    exchange, routing_key, ttl, dead_letter, dead_letter_exchange, dead_letter_routing_key,
    dead_letter_queue_type, queue_type, durable,
)  # fmt: skip

declare = option(
    Group.TOPOLOGY, "--declare", is_flag=True, envvar="CHRONICLE_DECLARE",
    help="Create the queue and what it needs before consuming, as chronicle declare does with these options; "
    "without it, the queue is only checked.",
)  # fmt: skip
allow_drop = option(
    Group.TOPOLOGY, "--allow-drop", is_flag=True, envvar="CHRONICLE_ALLOW_DROP",
    help="Start even if the broker is known to delete failed messages.",
)  # fmt: skip
management_url = option(
    Group.TOPOLOGY, "--management-url", metavar="URL", envvar="CHRONICLE_MANAGEMENT_URL",
    help="RabbitMQ's management API, http://host:15672 or https://…, queried once at startup: would dead "
    "letters be kept? User and password are those of --url, unless it has its own; a password belongs in the "
    "variable.",
)  # fmt: skip
consuming = stack(declare, shape, allow_drop, management_url)

WITH_DECLARE: Final = (
    "exchange", "routing_key", "ttl", "dead_letter", "dead_letter_exchange", "dead_letter_routing_key",
    "dead_letter_queue_type", "queue_type", "durable",
)  # fmt: skip

# Which options express a wish of QueueOptions.
SAYING: Final[Mapping[str, tuple[str, ...]]] = {
    "exchange": ("exchange", "routing_key"),
    "ttl": ("ttl",),
    "dead_letter": (
        "dead_letter", "dead_letter_exchange", "dead_letter_routing_key", "dead_letter_queue_type",
    ),
    "queue_type": ("queue_type",),
    "durable": ("durable",),
    "retry": ("retry_delay",),
}  # fmt: skip


def shape_of(ctx: click.Context, retry_delays: tuple[float, ...] = ()) -> QueueOptions:
    """What the options ask for."""
    values = ctx.params
    return check_shape(
        exchange=values["exchange"],
        routing_key=values["routing_key"],
        ttl=values["ttl"],
        dead_letter=values["dead_letter"],
        dead_letter_exchange=values["dead_letter_exchange"],
        dead_letter_routing_key=values["dead_letter_routing_key"],
        dead_letter_queue_type=values["dead_letter_queue_type"],
        queue_type=values["queue_type"],
        durable=values["durable"],
        retry_delays=retry_delays,
    )


def wishes_of(ctx: click.Context, broker: Broker) -> QueueOptions:
    """What `declare` is to create."""
    delays: tuple[float, ...] = ctx.params["retry_delay"] or ()
    # As a variable it may be meant for another broker.
    if "only_retry" in broker.refuses or not ctx.params["only_retry"]:
        return shape_of(ctx, delays)
    if not delays:
        raise SettingError("--only-retry without --retry-delay", "name the steps: --retry-delay 5s,30s,5m")
    about_the_queue = (name for name in WITH_DECLARE if name != "queue_type")
    refuse_typed(ctx, tuple(about_the_queue), "has no effect with --only-retry")
    return replace(shape_of(ctx, delays), only_retry=True)


def declared_of(ctx: click.Context, policy: Policy) -> QueueOptions | None:
    """What `consume` is to create before it starts; None if it only checks."""
    if not ctx.params["declare"]:
        refuse_typed(ctx, WITH_DECLARE, "has no effect without --declare")
        return None
    refuse_typed(
        ctx, ("management_url",), "has no effect with --declare: the declared queue keeps dead letters"
    )
    if policy.on_failure is not OnFailure.RETRY:
        return shape_of(ctx)
    from chronicle.core.topology import MaxAttempts

    return replace(shape_of(ctx), retry=MaxAttempts(policy.max_attempts, policy.retry_delays))


def refuse_unhonoured(ctx: click.Context, broker: Broker) -> None:
    """SettingError for an option on the command line that this broker does not honour, declared or not."""
    for wish, sentence in broker.unhonoured.items():
        # The delays of `consume` belong to --on-failure, and every broker honours that.
        if wish == "retry" and "declare" in ctx.params:
            continue
        # --durable and --dead-letter ask for what it does anyway.
        if any(typed(ctx, name) and ctx.params[name] is not True for name in SAYING[wish]):
            raise SettingError(sentence, "leave it out")


def oddities(ctx: click.Context, where: Where, declared: QueueOptions | None) -> tuple[str, ...]:
    """Warnings about these options of `consume`; SettingError for a wrong management URL."""
    if declared is not None:
        return ()
    given: str | None = ctx.params["management_url"]
    check = where.broker.dead_letter_check
    if not given or check is None:
        return ()
    warnings = check.check_url(given, where.url)
    if has_password(given) and typed(ctx, "management_url"):
        warnings += ("every user here can read a password on the command line; use CHRONICLE_MANAGEMENT_URL",)
    return warnings
