"""From what a program asks for to a job and a transport, by the rules of the command line (settings/).

Rule 1: everything that can be wrong is found here, before anything connects.
Rule 2: an option that this broker does not honour is refused, and the reason says why.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, get_type_hints

from chronicle.core.backoff import Backoff
from chronicle.core.body import MAX_BODY
from chronicle.core.pipeline import Schema
from chronicle.core.policy import (
    OnException,
    OnExhausted,
    OnFailure,
    OnInvalid,
    Policy,
    parse_on_failure,
)
from chronicle.core.queues import QueueType
from chronicle.engine.job import Bounds, Job, Lifecycle, Limits
from chronicle.errors import SettingError
from chronicle.library.handle import Handle
from chronicle.library.options import RunOptions, SubscribeOptions, WhereOptions
from chronicle.library.values import SEE, Values, check_text
from chronicle.settings.run import (
    Where,
    Work,
    asked,
    check_backoff,
    check_exhausted,
    check_retry,
    check_where,
    check_work,
    connector_of,
    consumer_tag,
    pipeline_of,
)
from chronicle.settings.shape import check_shape
from chronicle.telemetry.redaction import KNOWN, passwords_in, secrets_in
from chronicle.transports.broker import Broker, OptionKind
from chronicle.transports.catalog import broker_of, brokers, open_transport
from chronicle.transports.seam import Connector, Tls, Transport, refuse_what_it_cannot
from chronicle.workers.loader import Syncer, load, look_at

if TYPE_CHECKING:
    from chronicle.core.topology import QueueOptions

MOST_WORKERS: Final = 10_000
BRAKE: Final = 10  # failures in a row that pause intake, unless told otherwise
PROGRESS: Final = 60.0  # seconds between two events about it
WINDOW: Final = 20  # how many unsettled messages a subscription has, unless told otherwise
SHAPE: Final = (
    "exchange", "routing_key", "ttl", "dead_letter", "dead_letter_exchange", "dead_letter_routing_key",
    "dead_letter_queue_type", "queue_type", "durable",
)  # fmt: skip


class BrokerObject(Protocol):
    """A broker without a URL, such as the one in memory."""

    @property
    def record(self) -> Broker: ...


Place: TypeAlias = str | BrokerObject
Planned: TypeAlias = tuple[Job, Transport]


@cache
def names_of(options: Any) -> frozenset[str]:
    """The names of the options that a TypedDict has."""
    return frozenset(get_type_hints(options))


def plan_run(place: Place, queue: str, syncer: Any, given: RunOptions) -> Planned:
    """What `run` is to do; raises SettingError, SyncerError or KeyStoreError."""
    values = Values("run", given, names_of(RunOptions))
    values.instance("handle", Handle)
    name = syncer if isinstance(syncer, str) else _name_of(syncer)
    where = _where(place, queue, values, name)
    work = _work(values, where, name, values.member("schema", Schema, Schema.PROCA))
    policy = _policy(values)
    declared = _declared(values, policy, where.broker)
    found = load(work.syncer, work.app_dir) if isinstance(syncer, str) else look_at(syncer, name)
    allow_drop = values.flag("allow_drop")
    brake = values.whole("brake", least=0)
    limits = Limits(_given(values, "time_limit", 0.0), values.rate("rate"), BRAKE if brake is None else brake)
    connector = _connector(where, work, policy, declared, values, allow_drop=allow_drop, brake=limits.brake)
    job, transport = _planned(where, work, policy, _asked(connector, where, values), found, values)
    return replace(job, limits=limits, progress=_given(values, "progress", PROGRESS)), transport


def plan_subscription(
    place: Place, queue: str, options: QueueOptions, policy: Policy, schema: Schema, given: SubscribeOptions
) -> Planned:
    """What `subscribe` is to do; the syncer is only a name."""
    values = Values("subscribe", given, names_of(SubscribeOptions))
    where = _where(place, queue, values, "")
    where = replace(where, prefetch=where.prefetch or WINDOW)
    work = _work(values, where, "", values.member("schema", Schema, schema))
    on_exhausted = values["on_exhausted"]
    policy = replace(
        policy,
        on_invalid=values.member("on_invalid", OnInvalid, OnInvalid.REQUEUE_ONCE),
        on_exhausted=values.member("on_exhausted", OnExhausted, OnExhausted.DROP),
        max_retries=values.whole("max_retries"),
    )
    check_exhausted(policy, on_exhausted)
    _refuse_unhonoured(where.broker, options)
    _refuse_what_settles_nothing(open_transport(connector_of(where, work, policy), where.broker))
    target: Callable[[object], bool] = lambda _message: False  # noqa: E731 - nobody calls it
    # Whoever disables dead letters has said that the broker may drop what fails.
    connector = _connector(where, work, policy, options, values, allow_drop=True)
    return _planned(where, work, policy, connector, look_at(target, "subscribe"), values)


def _planned(
    where: Where,
    work: Work,
    policy: Policy,
    connector: Connector,
    syncer: Syncer,
    values: Values,
) -> Planned:
    transport = open_transport(connector, where.broker)
    bounds = Bounds(
        values.flag("until_empty"),
        values.whole("max_messages"),
        values.seconds("max_time"),
        values.seconds("idle_timeout"),
    )
    refuse_what_it_cannot(transport.promises, policy, until_empty=bounds.until_empty)
    job = Job(
        syncer,
        pipeline_of(work, policy),
        policy,
        work.concurrency,
        work.prefetch,
        bounds,
        _lifecycle(values, transport.promises.backoff),
        alone=False,
    )
    return job, transport


def _connector(
    where: Where,
    work: Work,
    policy: Policy,
    declared: QueueOptions | None,
    values: Values,
    *,
    allow_drop: bool,
    brake: int = 0,
) -> Connector:
    return connector_of(
        where,
        work,
        policy,
        declare=declared,
        order=values.text("order") or "",
        allow_drop=allow_drop,
        brake=brake,
    )


def _asked(connector: Connector, where: Where, values: Values) -> Connector:
    """The connector with what the broker's management says about dead letters, if it is to be asked."""
    url = values.text("management_url")
    check = where.broker.dead_letter_check
    if url is None:
        return connector
    if check is None or connector.declare is not None:
        raise SettingError("management_url has no effect here", "leave it out")
    KNOWN.add(*passwords_in(url))
    check.check_url(url, where.url)
    return asked(connector, where.broker, url)


def _where(place: Place, queue: str, values: Values, syncer: str) -> Where:
    _check_place(place)
    check_text("queue", queue)
    values.function("on_event")
    broker = broker_of(place) if isinstance(place, str) else place.record
    if isinstance(place, str):
        KNOWN.add(*passwords_in(place))
    return check_where(
        place if isinstance(place, str) else "",
        queue,
        tls=Tls(values.text("tls_ca"), values.text("tls_cert"), values.text("tls_key")),
        tag=consumer_tag(socket.gethostname(), values.text("tag"), syncer),
        extras=values.pairs("set"),
        choices=_choices(values, broker),
        broker=None if isinstance(place, str) else broker,
    )


def _check_place(place: object) -> None:
    if not isinstance(place, str) and not isinstance(getattr(place, "record", None), Broker):
        raise SettingError(f"url takes a URL or a MemoryBroker, not {type(place).__name__}", SEE)


def _choices(values: Values, broker: Broker) -> dict[str, Any]:
    """What was chosen of the broker's own options; another broker's are refused."""
    own = {option.name: option for option in broker.options if "consume" in option.commands}
    theirs = {option.name for other in brokers() for option in other.options}
    choices: dict[str, Any] = {}
    for spelled in sorted(names_of(WhereOptions)):
        name = spelled.rstrip("_")
        if values[spelled] is None or name not in theirs:
            continue
        if name not in own:
            raise SettingError(f"{spelled} has no effect on {broker.title}", "leave it out")
        option = own[name]
        match option.kind:
            case OptionKind.TEXT:
                choices[name] = values.text(spelled)
            case OptionKind.FLAG:
                choices[name] = values.flag(spelled)
            case OptionKind.COUNT:
                choices[name] = values.whole(spelled)
            case OptionKind.DURATION:
                choices[name] = values.seconds(spelled, zero=True)
            case OptionKind.CHOICE:
                if values[spelled] not in option.values:
                    raise SettingError(f"{spelled} takes {', '.join(option.values)}", "choose one of them")
                choices[name] = values[spelled]
    return choices


def _work(values: Values, where: Where, syncer: str, schema: Schema) -> Work:
    keys = values.text("keys")
    KNOWN.add(*secrets_in({"CHRONICLE_KEYS": keys or ""}))
    return check_work(
        syncer,
        app_dir=values.text("app_dir") or ".",
        concurrency=values.whole("concurrency", MOST_WORKERS) or 1,
        prefetch=values.whole("prefetch"),
        connector_prefetch=where.prefetch,
        schema=schema,
        keys=keys,
        sign_keys=values.texts("sign_key"),
        require_decryption=values.flag("require_decryption"),
        normalize_events=values.flag("normalize_events"),
        max_body=values.size("max_body", MAX_BODY),
    )


def _policy(values: Values) -> Policy:
    said = values.text("on_failure") or OnFailure.REQUEUE_ONCE
    try:
        on_failure, tries = parse_on_failure(said)
    except ValueError as error:
        raise SettingError(f"on_failure takes {error}", SEE) from None
    policy = Policy(
        on_failure,
        values.member("on_invalid", OnInvalid, OnInvalid.REQUEUE_ONCE),
        values.member("on_exception", OnException, OnException.EXIT),
        values.member("on_exhausted", OnExhausted, OnExhausted.DROP),
        values.whole("max_retries"),
    )
    check_exhausted(policy, values["on_exhausted"])
    return check_retry(policy, tries, values.spans("retry_delay"))


def _declared(values: Values, policy: Policy, broker: Broker) -> QueueOptions | None:
    """What `run` is to create before it starts; None if it only checks."""
    if not values.flag("declare"):
        for name in SHAPE:
            if values[name] is not None:
                raise SettingError(f"{name} has no effect without declare", "say declare=True")
        return None
    from chronicle.core.topology import MaxAttempts

    shape = check_shape(
        exchange=values.text("exchange"),
        routing_key=values.text("routing_key"),
        ttl=values.seconds("ttl"),
        dead_letter=values.flag("dead_letter", True),
        dead_letter_exchange=values.text("dead_letter_exchange"),
        dead_letter_routing_key=values.text("dead_letter_routing_key"),
        dead_letter_queue_type=values.member("dead_letter_queue_type", QueueType, QueueType.CLASSIC),
        queue_type=values.member("queue_type", QueueType, QueueType.CLASSIC),
        durable=values.flag("durable", True),
    )
    _refuse_unhonoured(broker, shape)
    if policy.on_failure is not OnFailure.RETRY:
        return shape
    return replace(shape, retry=MaxAttempts(policy.max_attempts, policy.retry_delays))


def _refuse_unhonoured(broker: Broker, options: QueueOptions) -> None:
    usual = check_shape()
    for wish, sentence in broker.unhonoured.items():
        # The delays belong to the policy here, and every broker honours that.
        if wish != "retry" and getattr(options, wish) != getattr(usual, wish):
            raise SettingError(sentence, "leave it out")


def _refuse_what_settles_nothing(transport: Transport) -> None:
    name = transport.promises.transport
    if not transport.promises.settles:
        raise SettingError(
            f"{name} keeps nothing to be settled: a message is gone when it arrives",
            "use run: its syncer is called once for every message",
        )


def _lifecycle(values: Values, usual: Backoff) -> Lifecycle:
    defaults = Lifecycle()
    return Lifecycle(
        startup_timeout=_given(values, "startup_timeout", defaults.startup_timeout),
        drain_timeout=_given(values, "drain_timeout", defaults.drain_timeout),
        give_up_after=_given(values, "give_up_after", defaults.give_up_after),
        backoff=check_backoff(
            usual,
            values.seconds("reconnect_initial"),
            values.seconds("reconnect_max"),
            values.factor("reconnect_multiplier"),
        ),
    )


def _given(values: Values, name: str, usual: float) -> float:
    given = values.seconds(name, zero=True)
    return usual if given is None else given


def _name_of(syncer: Any) -> str:
    """`module:name` of a function or class, as an operator would write it."""
    kind = syncer if hasattr(syncer, "__qualname__") else type(syncer)
    module = str(getattr(kind, "__module__", "") or "")
    if module == "__main__":
        file = getattr(sys.modules.get(module), "__file__", None)
        module = Path(file).stem if file else module
    return f"{module}:{kind.__qualname__}"


def labels_of(transport: Transport, queue: str) -> Mapping[str, str]:
    """What stands in the facts of every event."""
    return {**transport.promises.labels, "queue": queue, "connector": transport.place}
