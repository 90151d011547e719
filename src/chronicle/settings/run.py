"""The checked settings of a run, and the rules between options: of the command line and of programs alike.

Rule 1: a function takes plain values and returns a frozen result or raises SettingError; it prints nothing.
Rule 2: what is unusual but allowed becomes a line in `warnings`.
Rule 3: no error and no warning repeats a URL, a password or the content of a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from chronicle.core.backoff import Backoff
from chronicle.core.body import MAX_BODY
from chronicle.core.deadletters.prospect import LetterTerms
from chronicle.core.frozen import frozen
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import OnExhausted, OnFailure, Policy
from chronicle.core.queues import MAX_NAME, SHORTEST, is_too_long
from chronicle.errors import SettingError
from chronicle.telemetry.redaction import KNOWN
from chronicle.transports.broker import Broker
from chronicle.transports.catalog import broker_of, scheme_of
from chronicle.transports.seam import Connector, Tls, needed_by
from chronicle.workers.loader import is_file

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import QueueOptions
    from chronicle.proca.keystore import Unlock

LONGEST_WAIT: Final = 49 * 86400.0  # seconds; RabbitMQ counts a TTL's milliseconds in 32 bits
MAX_PREFETCH: Final = 65535  # AMQP's maximum; zero would mean no limit


@frozen
class Where:
    """Which queue, and how to reach it. `tag` is the whole consumer tag."""

    url: str = field(repr=False)
    queue: str
    broker: Broker
    tls: Tls = field(default_factory=Tls)
    tag: str = "chronicle"
    extras: Mapping[str, str] = field(default_factory=dict, repr=False)
    choices: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of the broker's own options
    prefetch: int | None = None  # what the URL or --set gives as the default (R-000-47)
    warnings: tuple[str, ...] = ()
    notice: str = ""

    def connector(self, prefetch: int = 1) -> Connector:
        return Connector(self.url, self.queue, prefetch, self.tag, self.tls, self.extras, self.choices)


@frozen
class Work:
    """What runs over the messages. `keys` is a file, or the key store itself as JSON."""

    syncer: str
    app_dir: str = "."
    concurrency: int = 1
    prefetch: int = 2
    schema: Schema = Schema.PROCA
    keys: str | None = field(default=None, repr=False)
    sign_keys: tuple[str, ...] = ()
    require_decryption: bool = False
    normalize_events: bool = False
    max_body: int = MAX_BODY
    warnings: tuple[str, ...] = ()


def check_where(
    url: str,
    queue: str,
    *,
    tls: Tls | None = None,
    tag: str = "chronicle",
    extras: Mapping[str, str] | None = None,
    choices: Mapping[str, Any] | None = None,
    broker: Broker | None = None,
) -> Where:
    """Which queue is meant, after checking every rule about URLs, names and certificates.

    A `broker` that is in nobody's catalog has no URL to be checked.
    """
    tls, extras, choices = tls or Tls(), dict(extras or {}), dict(choices or {})
    check_name("--queue", queue)
    check_name("--tag", tag)
    scheme = scheme_of(url) if broker is None else ""
    broker = broker or broker_of(url)
    check_tls(scheme, broker, tls)
    if extras and not broker.settings:
        raise SettingError(f"--set has no effect on {broker.title}", "leave it out")
    facts = broker.check_url(url, extras, choices)
    return Where(url, queue, broker, tls, tag, extras, choices, facts.prefetch, facts.warnings)


def check_name(option: str, name: str) -> None:
    """Check that a broker can hold this name and a log can print it."""
    if not name or not name.isprintable():
        raise SettingError(f"{option} is empty or contains control characters", f"give {option} a plain name")
    if is_too_long(name):
        raise SettingError(f"{option} is longer than {MAX_NAME} bytes", "choose a shorter name")


def check_tls(scheme: str, broker: Broker, tls: Tls) -> None:
    """Allow certificates only where they are used, and a key only with its certificate."""
    if tls.key and not tls.cert:
        raise SettingError("--tls-key without --tls-cert", "a key is useless without its certificate")
    if scheme not in broker.secure_schemes and (tls.ca or tls.cert):
        secure = " or ".join(f"{name}://" for name in broker.secure_schemes)
        raise SettingError(
            f"--tls-ca and --tls-cert have no effect on {scheme}",
            f"write {secure} to connect with TLS" if secure else "leave them out",
        )


def check_work(
    syncer: str,
    *,
    app_dir: str = ".",
    concurrency: int = 1,
    prefetch: int | None = None,
    connector_prefetch: int | None = None,
    schema: Schema = Schema.PROCA,
    keys: str | None = None,
    sign_keys: tuple[str, ...] = (),
    require_decryption: bool = False,
    normalize_events: bool = False,
    max_body: int = MAX_BODY,
) -> Work:
    """What runs over the messages, after checking the rules between these options (D-8, D-20)."""
    if schema is not Schema.PROCA and (keys or normalize_events):
        option = "--keys" if keys else "--normalize-events"
        raise SettingError(f"{option} has no effect with --schema {schema}", "it belongs to --schema proca")
    if sign_keys and not keys:
        raise SettingError("--sign-key has no effect without --keys", "name the key store with --keys FILE")
    if prefetch is not None and prefetch > MAX_PREFETCH:
        raise SettingError(
            f"--prefetch takes at most {MAX_PREFETCH}", "no broker delivers more to one consumer"
        )
    held = prefetch or connector_prefetch or min(2 * concurrency, MAX_PREFETCH)
    warnings: tuple[str, ...] = ()
    if held < min(concurrency, MAX_PREFETCH):
        warnings = (f"with a prefetch of {held}, only {held} of {concurrency} workers can be busy",)
    return Work(
        syncer,
        app_dir,
        concurrency,
        held,
        schema,
        keys,
        sign_keys,
        require_decryption,
        normalize_events,
        max_body,
        warnings,
    )


def check_exhausted(policy: Policy, on_exhausted: OnExhausted | None) -> None:
    """`--on-exhausted` needs a limit; without one it would silently do nothing."""
    if on_exhausted is not None and policy.max_retries is None:
        raise SettingError("--on-exhausted without --max-retries", "set the limit with --max-retries N")


def check_retry(policy: Policy, tries: int, delays: tuple[float, ...] | None) -> Policy:
    """The policy with `retry:N` and the delays between the tries (D-2)."""
    if policy.on_failure is not OnFailure.RETRY:
        if delays is not None:
            raise SettingError(
                "--retry-delay without --on-failure retry:N", "say how many tries there are, such as retry:5"
            )
        return policy
    if delays is not None and not all(SHORTEST <= delay <= LONGEST_WAIT for delay in delays):
        raise SettingError("--retry-delay takes from 1ms to 49d", "no broker delays a message for longer")
    return replace(policy, max_attempts=tries, retry_delays=delays or policy.retry_delays)


def check_backoff(
    usual: Backoff, initial: float | None, maximum: float | None, multiplier: float | None
) -> Backoff | None:
    """The wait between reconnects; None if nothing was set, and the transport's `usual` one applies (D-6)."""
    if initial is None and maximum is None and multiplier is None:
        return None
    # A first wait longer than the default maximum should not need a second option, nor the reverse.
    backoff = Backoff(
        min(usual.initial, maximum or usual.initial) if initial is None else initial,
        max(usual.maximum, initial or 0.0) if maximum is None else maximum,
        usual.multiplier if multiplier is None else multiplier,
    )
    if backoff.initial > backoff.maximum:
        raise SettingError(
            "--reconnect-initial is longer than --reconnect-max",
            "make it shorter: the wait grows from one to the other",
        )
    return backoff


def connector_of(
    where: Where,
    work: Work,
    policy: Policy,
    *,
    declare: QueueOptions | None = None,
    order: str = "",
    allow_drop: bool = False,
    brake: int = 0,
) -> Connector:
    """How the queue is reached for this work."""
    return replace(
        where.connector(work.prefetch),
        declare=declare,
        retry_delays=policy.retry_delays if policy.on_failure is OnFailure.RETRY else (),
        max_body=work.max_body,
        letters=LetterTerms(allow_drop=allow_drop, needed_by=needed_by(policy)),
        widens=brake > 0,
        order=order,
    )


def asked(connector: Connector, broker: Broker, management_url: str | None) -> Connector:
    """The connector with what the broker's management says about dead letters, if it can be asked (RB8)."""
    check = broker.dead_letter_check
    if check is None or not management_url or connector.declare is not None:
        return connector
    return replace(
        connector, letters=replace(connector.letters, prospect=check.ask(connector, management_url))
    )


def pipeline_of(work: Work, policy: Policy, unlock: Unlock = lambda content, _name: content) -> Pipeline:
    """The pipeline for this work; the key store is read here, before connecting to anything."""
    keys = None
    if work.keys:
        from chronicle.proca.keystore import KeyStore  # loads NaCl

        keys = KeyStore.load(work.keys, unlock, work.sign_keys)
        KNOWN.add(*keys.privates())
    return Pipeline(
        work.schema,
        keys,
        work.require_decryption,
        work.normalize_events,
        work.max_body,
        policy.max_retries,
    )


def consumer_tag(hostname: str, tag: str | None, syncer: str | None = None) -> str:
    """R-004-8: `<hostname>.<tag or package>`, so that the broker's own tools show who consumes."""
    return f"{hostname}.{tag or package_of(syncer or '') or 'chronicle'}"


def package_of(syncer: str) -> str:
    """The top-level package of `module:name`, or the name of the file; empty when it makes no tag."""
    place = syncer.rpartition(":")[0]
    name = PurePath(place).stem if is_file(place) else place.partition(".")[0]
    return name if name.isprintable() else ""
