"""The options commands share, each with its variable, and how they become settings.

A command decorates itself with the groups it needs (`@options.where`, `@options.work` …) and asks for the
settings (`options.where_of(ctx)` …), which are checked and independent of click.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from enum import StrEnum
from typing import Any

import click

from chronicle.core.backoff import Backoff
from chronicle.core.pipeline import Schema
from chronicle.core.policy import OnException, OnExhausted, OnFailure, OnInvalid, Policy
from chronicle.engine.job import Bounds, Lifecycle
from chronicle.settings.run import (
    Where,
    Work,
    check_backoff,
    check_exhausted,
    check_retry,
    check_where,
    check_work,
    consumer_tag,
)
from chronicle.telemetry.redaction import KNOWN, passwords_in, secrets_in
from chronicle.transports.catalog import broker_of, usual_url
from chronicle.transports.seam import Tls
from chronicle_cli.broker_help import broker_settings, broker_urls
from chronicle_cli.broker_options import choices_of
from chronicle_cli.broker_url import has_password, resolve_url
from chronicle_cli.given import refuse_useless, typed
from chronicle_cli.help import Group, option, stack
from chronicle_cli.params import (
    DURATION,
    DURATIONS,
    FACTOR,
    FAILURE,
    KEY_VALUE,
    LOG_LEVELS,
    ORDER,
    POSITIVE,
    SIZE,
    SPAN,
    WORKERS,
    OneOf,
)
from chronicle_cli.settings import LogFormat, Output


def _choice(
    group: Group, flag: str, members: type[StrEnum], default: StrEnum | None = None, **attributes: Any
) -> Any:
    kind = OneOf(members)
    # click would show the member's name; the operator types its value.
    shown = None if default is None else default.value
    return option(group, flag, type=kind, metavar=kind.metavar, default=shown, **attributes)


# --- where ---------------------------------------------------------------------------------------------

url = option(
    Group.WHERE, "--url", metavar="URL", envvar="CHRONICLE_URL",
    help=f"The broker. {'; '.join(broker_urls())}. A password "
    "belongs in CHRONICLE_PASSWORD or in the file CHRONICLE_PASSWORD_FILE names; the whole URL can be in the "
    "file CHRONICLE_URL_FILE names. PROCA_URL, or PROCA_USERNAME and PROCA_PASSWORD, also work.  "
    f"[default: {usual_url()}]",
)  # fmt: skip
queue = option(
    Group.WHERE, "--queue", metavar="NAME", required=True, envvar=["CHRONICLE_QUEUE", "PROCA_QUEUE"],
    help="The queue.",
)  # fmt: skip
extras = option(
    Group.WHERE, "--set", "extras", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE",
    envvar="CHRONICLE_SET",
    help=f"A setting for the broker's client; repeatable. {'. '.join(broker_settings())}. In the variable, "
    "separate pairs with spaces.",
)  # fmt: skip
tls_ca = option(
    Group.WHERE, "--tls-ca", metavar="FILE", envvar="CHRONICLE_TLS_CA",
    help="Certificate authority to verify the broker with (PEM).  [default: the system's]",
)  # fmt: skip
tls_cert = option(
    Group.WHERE, "--tls-cert", metavar="FILE", envvar="CHRONICLE_TLS_CERT", help="Client certificate (PEM)."
)
tls_key = option(
    Group.WHERE, "--tls-key", metavar="FILE", envvar="CHRONICLE_TLS_KEY",
    help="Key of the client certificate (PEM), if it is not in the same file.",
)  # fmt: skip
tag = option(
    Group.WHERE, "--tag", metavar="NAME", envvar="CHRONICLE_TAG",
    help="Name shown in the broker's own tools: the consumer tag is HOSTNAME.TAG.  "
    "[default: the syncer's package or file; chronicle without a syncer]",
)  # fmt: skip
where = stack(url, queue, extras, tls_ca, tls_cert, tls_key, tag)

# --- work ----------------------------------------------------------------------------------------------

syncer = option(
    Group.WORK, "--syncer", metavar="MODULE:NAME", required=True, envvar="CHRONICLE_SYNCER",
    help="Your function: module:name or path/to/file.py:name. It takes a message and returns True or False.",
)  # fmt: skip
app_dir = option(
    Group.WORK, "--app-dir", metavar="FOLDER", default=".", envvar="CHRONICLE_APP_DIR",
    help="Where to look for the syncer's module, after the standard library.",
)  # fmt: skip
concurrency = option(
    Group.WORK, "--concurrency", type=WORKERS, default=1, metavar="N", envvar="CHRONICLE_CONCURRENCY",
    help="How many messages to handle at once; at most 10000.",
)  # fmt: skip
prefetch = option(
    Group.WORK, "--prefetch", type=POSITIVE, metavar="N", envvar="CHRONICLE_PREFETCH",
    help="How many messages the broker may deliver ahead.  [default: prefetch from the URL or --set, else "
    "twice the concurrency]",
)  # fmt: skip
order = option(
    Group.WORK, "--order", type=ORDER, metavar=ORDER.metavar, envvar="CHRONICLE_ORDER",
    help="Messages of one lane are handled one after the other, in their order and through their retries, "
    "within this process; other lanes go on. field:PATH: those with the same value of a field of the body, "
    "such as field:contact.contactRef. key, partition: the broker's own, where it has them. none: nothing "
    "waits for anything else.  [default: none; on Kafka: key]",
)  # fmt: skip
schema = _choice(
    Group.WORK, "--schema", Schema, default=Schema.PROCA, envvar="CHRONICLE_SCHEMA",
    help="What a message must be: proca's actions and events, any JSON object, or just bytes.",
)  # fmt: skip
keys = option(
    Group.WORK, "--keys", metavar="FILE", envvar="CHRONICLE_KEYS",
    help="Key store that opens personal data (mode 600). The variable may also contain the JSON itself.",
)  # fmt: skip
sign_key = option(
    Group.WORK, "--sign-key", "sign_keys", multiple=True, metavar="PUBLIC", envvar="CHRONICLE_SIGN_KEY",
    help="Open only what was sealed with this public key of the server; anything else is bad input. "
    "Repeatable; in the variable, separate keys with spaces. The key store's signKeys are pinned as well.  "
    "[default: whoever sealed it]",
)  # fmt: skip
require_decryption = option(
    Group.WORK, "--require-decryption", is_flag=True, envvar="CHRONICLE_REQUIRE_DECRYPTION",
    help="Treat a message whose key is not in the store as bad input, instead of passing it on sealed.",
)  # fmt: skip
normalize_events = option(
    Group.WORK, "--normalize-events", is_flag=True, envvar="CHRONICLE_NORMALIZE_EVENTS",
    help="Copy ids into events and open their personal data, as is done for actions.",
)  # fmt: skip
max_body = option(
    Group.WORK, "--max-body", type=SIZE, default="4MiB", metavar="SIZE", envvar="CHRONICLE_MAX_BODY",
    help="A larger message is bad input. Decoded, JSON takes up to forty times its size in memory.",
)  # fmt: skip
work = stack(
    syncer, app_dir, concurrency, prefetch, schema, keys, sign_key, require_decryption, normalize_events,
    max_body,
)  # fmt: skip

# --- outcome -------------------------------------------------------------------------------------------

on_failure = option(
    Group.OUTCOME, "--on-failure", type=FAILURE, metavar=FAILURE.metavar,
    default=OnFailure.REQUEUE_ONCE.value, envvar="CHRONICLE_ON_FAILURE",
    help="What to do with a message when the syncer returns False. requeue-once: one more try, then "
    "dead-letter. retry:N: N tries in all, with --retry-delay between them, then dead-letter. requeue: retry "
    "forever, with a growing delay. ack: acknowledge it anyway, so failures are lost.",
)  # fmt: skip
on_invalid = _choice(
    Group.OUTCOME, "--on-invalid", OnInvalid, default=OnInvalid.REQUEUE_ONCE, envvar="CHRONICLE_ON_INVALID",
    help="What to do with bad input: not JSON, unknown schema, damaged personal data.",
)  # fmt: skip
on_exception = _choice(
    Group.OUTCOME, "--on-exception", OnException, default=OnException.EXIT, envvar="CHRONICLE_ON_EXCEPTION",
    help="What an exception in the syncer does: end the process (code 1), or fail this message.",
)  # fmt: skip
max_retries = option(
    Group.OUTCOME, "--max-retries", type=POSITIVE, metavar="N", envvar="CHRONICLE_MAX_RETRIES",
    help="For queues with a dead-letter retry loop: after more rounds than this, --on-exhausted applies, "
    "before the body is read.  [default: no limit]",
)  # fmt: skip
on_exhausted = _choice(
    Group.OUTCOME, "--on-exhausted", OnExhausted, envvar="CHRONICLE_ON_EXHAUSTED",
    help="What to do with a message beyond --max-retries: acknowledge and log it, or dead-letter it.  "
    "[default: drop]",
)  # fmt: skip
retry_delay = option(
    Group.OUTCOME, "--retry-delay", type=DURATIONS, metavar="DURATIONS", envvar="CHRONICLE_RETRY_DELAY",
    help="With retry:N: how long a failed message waits before each further try; the last delay repeats. On "
    "RabbitMQ each delay is a separate queue, created by chronicle declare.  "
    "[default with retry:N: 5s,30s,5m]",
)  # fmt: skip
outcome = stack(on_failure, retry_delay, on_invalid, on_exception, max_retries, on_exhausted)

# --- bounds --------------------------------------------------------------------------------------------

until_empty = option(
    Group.BOUNDS, "--until-empty", is_flag=True, envvar="CHRONICLE_UNTIL_EMPTY",
    help="End when the queue is empty and everything is settled; for cron.",
)  # fmt: skip
max_messages = option(
    Group.BOUNDS, "--max-messages", type=POSITIVE, metavar="N", envvar="CHRONICLE_MAX_MESSAGES",
    help="End after this many messages.",
)  # fmt: skip
max_time = option(
    Group.BOUNDS, "--max-time", type=SPAN, metavar="DURATION", envvar="CHRONICLE_MAX_TIME",
    help="End after this long, for example 5m.",
)  # fmt: skip
idle_timeout = option(
    Group.BOUNDS, "--idle-timeout", type=SPAN, metavar="DURATION", envvar="CHRONICLE_IDLE_TIMEOUT",
    help="End when no message has arrived for this long, for example 30s.",
)  # fmt: skip
bounds = stack(until_empty, max_messages, max_time, idle_timeout)

# --- lifecycle -----------------------------------------------------------------------------------------

startup_timeout = option(
    Group.LIFECYCLE, "--startup-timeout", type=DURATION, default="60s", metavar="DURATION",
    envvar="CHRONICLE_STARTUP_TIMEOUT",
    help="How long to try to reach the broker at startup before exiting with code 3. 0: forever.",
)  # fmt: skip
drain_timeout = option(
    Group.LIFECYCLE, "--drain-timeout", type=DURATION, default="30s", metavar="DURATION",
    envvar="CHRONICLE_DRAIN_TIMEOUT",
    help="How long a stop waits for running syncers; unfinished messages go back, exit code 4. Keep it a few "
    "seconds shorter than the supervisor's own limit: Kubernetes waits 30s by default, Docker 10s.",
)  # fmt: skip
reconnect_initial = option(
    Group.LIFECYCLE, "--reconnect-initial", type=SPAN, metavar="DURATION",
    envvar="CHRONICLE_RECONNECT_INITIAL",
    help="First wait before reconnecting.  [default: the broker's own, such as 250ms]",
)  # fmt: skip
reconnect_max = option(
    Group.LIFECYCLE, "--reconnect-max", type=SPAN, metavar="DURATION", envvar="CHRONICLE_RECONNECT_MAX",
    help="Longest wait before reconnecting.  [default: the broker's own, such as 10s]",
)  # fmt: skip
reconnect_multiplier = option(
    Group.LIFECYCLE, "--reconnect-multiplier", type=FACTOR, metavar="X",
    envvar="CHRONICLE_RECONNECT_MULTIPLIER",
    help="Factor by which the wait grows after each try.  [default: the broker's own, such as 2]",
)  # fmt: skip
give_up_after = option(
    Group.LIFECYCLE, "--give-up-after", type=DURATION, default="0", metavar="DURATION",
    envvar="CHRONICLE_GIVE_UP_AFTER",
    help="Exit with code 3 when a lost broker stays unreachable for this long. 0: never.",
)  # fmt: skip
lifecycle = stack(
    startup_timeout, drain_timeout, reconnect_initial, reconnect_max, reconnect_multiplier, give_up_after
)

# --- output --------------------------------------------------------------------------------------------

log_format = _choice(
    Group.OUTPUT, "--log-format", LogFormat, default=LogFormat.AUTO, envvar="CHRONICLE_LOG_FORMAT",
    help="auto: pretty in a terminal, one JSON object per line elsewhere.",
)  # fmt: skip
log_level = option(
    Group.OUTPUT, "--log-level", type=LOG_LEVELS, metavar=LOG_LEVELS.metavar, default="info",
    envvar="CHRONICLE_LOG_LEVEL",
    help="The lowest severity to log, of chronicle and your syncer. Other libraries log warnings, unless you "
    "name them: info,httpx=info. root=debug is for all that are not named.",
)  # fmt: skip
live = option(
    Group.OUTPUT, "--live/--no-live", default=None, envvar="CHRONICLE_LIVE",
    help="Show the live view.  [default: in a terminal]",
)  # fmt: skip
progress = option(
    Group.OUTPUT, "--progress", type=DURATION, default="1m", metavar="DURATION",
    envvar="CHRONICLE_PROGRESS",
    help="How often to log rates, what waits and what is in work, where there is no live view. 0: never.",
)  # fmt: skip
output = stack(log_format, log_level, live, progress)

capture = option(
    Group.OUTPUT, "--capture", metavar="FILE", envvar="CHRONICLE_CAPTURE",
    help="Append every message that was acknowledged, dead-lettered or dropped to this file, as it came, "
    "with its outcome (mode 600). If it cannot be written, the run ends with code 1.",
)  # fmt: skip
encrypt = option(
    Group.OUTPUT, "--encrypt/--no-encrypt", default=None, envvar="CHRONICLE_ENCRYPT",
    help="Encrypt the file with the passphrase in CHRONICLE_PASSPHRASE or in the file "
    "CHRONICLE_PASSPHRASE_FILE names (else you are prompted), or with the key in CHRONICLE_ENCRYPT_KEY_FILE."
    "  [default: if one of these is set]",
)  # fmt: skip
bodies_as_json = option(
    Group.OUTPUT, "--bodies-as-json/--no-bodies-as-json", default=True, envvar="CHRONICLE_BODIES_AS_JSON",
    help="Whether a record has the body as text and as JSON, too, for people and other programs. Without, a "
    "file is less than half as large; chronicle reads both.",
)  # fmt: skip
encrypted = click.option(
    "--encrypted/--plain", "encrypt", default=None, envvar="CHRONICLE_ENCRYPT", show_envvar=True,
    help="Refuse a file that is not encrypted, or accept it.  [default: refused if CHRONICLE_PASSPHRASE, "
    "CHRONICLE_PASSPHRASE_FILE or CHRONICLE_ENCRYPT_KEY_FILE is set]",
)  # fmt: skip


def where_of(ctx: click.Context) -> Where:
    """Which queue, from the options and the environment."""
    values = ctx.params
    given: str | None = values.get("url")
    address = resolve_url(given, os.environ)
    KNOWN.add(*passwords_in(address), *passwords_in(values.get("management_url") or ""))
    found = check_where(
        address,
        values["queue"],
        tls=Tls(values.get("tls_ca"), values.get("tls_cert"), values.get("tls_key")),
        tag=consumer_tag(
            socket.gethostname(), values.get("tag"), values.get("syncer") or values.get("verify")
        ),
        extras=dict(values.get("extras") or ()),
        choices=choices_of(ctx, broker_of(address)),
    )
    refuse_useless(ctx, found.broker)
    warnings = found.warnings
    if given and has_password(given) and typed(ctx, "url"):
        warnings += (
            "every user of this machine can read a password on the command line; use CHRONICLE_PASSWORD",
        )
    notice = ""
    if address == usual_url() and not given:
        notice = f"no --url given: using {found.broker.title} in this folder, {address}"
    return replace(found, warnings=warnings, notice=notice)


def work_of(ctx: click.Context, connector_prefetch: int | None = None) -> Work:
    """What runs over the messages; an option this command does not have keeps its default."""
    names = ("app_dir", "concurrency", "prefetch", "schema", "keys", "sign_keys", "require_decryption",
             "normalize_events", "max_body")  # fmt: skip
    known = {name: ctx.params[name] for name in names if name in ctx.params}
    found = check_work(ctx.params["syncer"], connector_prefetch=connector_prefetch, **known)
    KNOWN.add(*secrets_in({"CHRONICLE_KEYS": found.keys or ""}))
    if found.keys and found.keys.lstrip().startswith("{") and typed(ctx, "keys"):
        warning = (
            "every user of this machine can read keys on the command line; put them in a file of mode 600"
        )
        return replace(found, warnings=(*found.warnings, warning))
    return found


def policy_of(ctx: click.Context) -> Policy:
    """The operator's choices about outcomes."""
    values = ctx.params
    on_failure, tries = values["on_failure"]
    policy = Policy(
        on_failure,
        values["on_invalid"],
        values["on_exception"],
        values["on_exhausted"] or OnExhausted.DROP,
        values["max_retries"],
    )
    check_exhausted(policy, values["on_exhausted"])
    # As a variable the delays may be meant for `chronicle declare`.
    given = values["retry_delay"] if tries or typed(ctx, "retry_delay") else None
    return check_retry(policy, tries, given)


def bounds_of(ctx: click.Context) -> Bounds:
    """When the run ends by itself."""
    values = ctx.params
    return Bounds(values["until_empty"], values["max_messages"], values["max_time"], values["idle_timeout"])


def lifecycle_of(ctx: click.Context, usual: Backoff) -> Lifecycle:
    """The timeouts of the run; `usual` is the transport's own wait between reconnects."""
    values = ctx.params
    return Lifecycle(
        startup_timeout=values["startup_timeout"],
        drain_timeout=values["drain_timeout"],
        give_up_after=values["give_up_after"],
        backoff=check_backoff(
            usual, values["reconnect_initial"], values["reconnect_max"], values["reconnect_multiplier"]
        ),
    )


def output_of(ctx: click.Context) -> Output:
    """How the run is shown."""
    values = ctx.params
    return Output(values["log_format"], values["log_level"], values["live"], values["progress"])
