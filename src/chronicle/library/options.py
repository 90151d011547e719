"""The options of `run` and `subscribe`: those of `chronicle consume`, with the same names and meanings.

A duration is a number of seconds or a text such as "5m", a size a number of bytes or a text such as "4MiB", a
rate a number per second or a text such as "600/min".
`from_` is `--from`, which Python keeps for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

from chronicle.library.event import Event
from chronicle.library.handle import Handle

Duration: TypeAlias = float | str
Size: TypeAlias = int | str


class WhereOptions(TypedDict, total=False):
    """How the queue is reached, and what its broker has of its own."""

    set: Mapping[str, str]
    tls_ca: str
    tls_cert: str
    tls_key: str
    tag: str
    dead_letters: Literal["auto", "chronicle", "broker"]
    mode: Literal["stream", "pubsub"]
    group: str
    no_group: bool
    from_: str
    cursor: str
    field: str
    claim_idle: Duration
    partitions: int
    replication: int


class IntakeOptions(TypedDict, total=False):
    """What is taken in, and for how long."""

    prefetch: int
    order: str
    keys: str
    sign_key: Sequence[str]
    require_decryption: bool
    normalize_events: bool
    max_body: Size
    on_invalid: Literal["requeue-once", "dead-letter"]
    max_retries: int
    on_exhausted: Literal["drop", "dead-letter"]
    until_empty: bool
    max_messages: int
    max_time: Duration
    idle_timeout: Duration
    startup_timeout: Duration
    drain_timeout: Duration
    reconnect_initial: Duration
    reconnect_max: Duration
    reconnect_multiplier: float
    give_up_after: Duration
    on_event: Callable[[Event], None]


class SubscribeOptions(WhereOptions, IntakeOptions, total=False):
    """What `subscribe` takes besides the queue's own options."""

    schema: Literal["proca", "json", "raw"]


class RunOptions(WhereOptions, IntakeOptions, total=False):
    """What `run` and `arun` take."""

    schema: Literal["proca", "json", "raw"]
    app_dir: str
    concurrency: int
    on_failure: str
    retry_delay: Sequence[Duration]
    on_exception: Literal["exit", "fail"]
    time_limit: Duration
    rate: float | str
    brake: int
    declare: bool
    exchange: str
    routing_key: str
    ttl: Duration
    dead_letter: bool
    dead_letter_exchange: str
    dead_letter_routing_key: str
    dead_letter_queue_type: Literal["classic", "quorum"]
    queue_type: Literal["classic", "quorum"]
    durable: bool
    allow_drop: bool
    management_url: str
    progress: Duration
    handle: Handle
