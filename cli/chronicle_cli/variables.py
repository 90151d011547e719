"""The CHRONICLE_… variables that exist, and suggestions for misspelt ones.

Rule: the list is written out, but for the brokers' own options, which their records name. The options are
defined in the files of all commands, and no run should import them all; a test keeps the list complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

PREFIX: Final = "CHRONICLE_"
CLOSE: Final = 0.75  # of 1; below that the suggestion is a riddle
OF_COMMANDS: Final = frozenset((
    "AGAINST", "ALLOW_DROP", "APP_DIR", "BODIES_AS_JSON", "BRAKE", "CAPTURE", "CONCURRENCY", "DEAD_LETTER",
    "DEAD_LETTER_EXCHANGE", "DEAD_LETTER_QUEUE_TYPE", "DEAD_LETTER_ROUTING_KEY",
    "DECLARE", "DLQ", "DLQ_ALSO", "DLQ_EXPORT", "DLQ_JSON", "DLQ_MATCH", "DLQ_MAX_DELIVERIES",
    "DLQ_MAX_REDRIVES", "DLQ_NO_EXPORT", "DLQ_RATE", "DLQ_REVEAL", "DLQ_TO", "DLQ_VERIFY", "DLQ_YES",
    "DRAIN_TIMEOUT", "DRY_RUN", "DURABLE", "ENCRYPT", "ENCRYPT_KEY_FILE", "ENV_ALLOW", "ENV_FILE", "EXCHANGE",
    "GIVE_UP_AFTER", "IDLE_TIMEOUT", "KEYS", "KEYS_MESSAGE", "LIMIT", "LIVE", "LOG_FORMAT", "LOG_LEVEL",
    "MANAGEMENT_URL", "MAX_BODY", "MAX_DELIVERIES", "MAX_MESSAGES", "MAX_RETRIES", "MAX_TIME",
    "NORMALIZE_EVENTS", "ONLY_FAILED", "ONLY_RETRY", "ON_EXCEPTION", "ON_EXHAUSTED", "ON_FAILURE",
    "ON_INVALID", "ORDER", "PASSPHRASE", "PASSPHRASE_FILE", "PASSWORD", "PASSWORD_FILE", "PREFETCH",
    "PROGRESS", "QUEUE", "QUEUE_TYPE", "RATE", "RECONNECT_INITIAL", "RECONNECT_MAX", "RECONNECT_MULTIPLIER",
    "REPEAT", "REPLAY_DEAD_LETTERS", "REQUIRE_DECRYPTION", "RETRY_DELAY", "ROUTING_KEY", "SCHEMA", "SET",
    "SIGN_KEY", "STARTUP_TIMEOUT", "SYNCER", "TAG", "TIME_LIMIT", "TLS_CA", "TLS_CERT", "TLS_KEY", "TTL",
    "UNTIL_EMPTY", "URL", "URL_FILE",
))  # fmt: skip
OF_SYNCERS: Final = frozenset((
    "CONSOLE_REVEAL", "CSV_FIELDS", "CSV_FILE", "JSONL_FILE", "SQL_TABLE", "SQL_URL", "WEBHOOK_TIMEOUT",
    "WEBHOOK_TOKEN", "WEBHOOK_TOKEN_FILE", "WEBHOOK_URL",
))  # fmt: skip


def variable(name: str) -> str:
    """The variable of an option: claim_idle → CHRONICLE_CLAIM_IDLE."""
    return f"{PREFIX}{name.upper()}"


def of_brokers() -> frozenset[str]:
    """Those of the brokers' own options, without the prefix."""
    from chronicle.transports.catalog import brokers  # most runs have no variable that is in question

    return frozenset(option.name.upper() for broker in brokers() for option in broker.options)


def unknown(names: Iterable[str], *, strangers: bool = True) -> Iterator[str]:
    """A warning for each of these variables that looks like one of chronicle's but is not.

    Without `strangers`, only for those that resemble one: others may be somebody else's. Kubernetes, for one,
    sets CHRONICLE_SERVICE_HOST for a service called chronicle.
    """
    known = OF_COMMANDS | OF_SYNCERS
    for name in names:
        rest = name.removeprefix(PREFIX)
        if rest == name or rest in known or rest in of_brokers():
            continue
        from difflib import get_close_matches  # only a typo pays for it

        close = get_close_matches(rest, sorted(known | of_brokers()), 1, CLOSE)
        meant = f"; did you mean {PREFIX}{close[0]}?" if close else ""
        if close or strangers:
            yield f"unknown variable {name}{meant}"
