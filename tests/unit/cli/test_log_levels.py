"""Who may log how much, and in which form, read from options that may not even make sense."""

from __future__ import annotations

import logging

import pytest

from chronicle_cli.log_levels import LogLevels, parse_levels
from chronicle_cli.log_mode import says_json


def levels(text: str, *loggers: str) -> list[int]:
    least = parse_levels(text).least(("my_crm",))
    return [least(logger) for logger in loggers]


def test_a_plain_level_is_for_chronicle_and_the_syncer_and_others_log_warnings() -> None:
    assert levels("info", "chronicle.engine", "my_crm", "my_crm.http", "root") == [logging.INFO] * 4
    assert levels("debug", "httpx", "my_crmx", "urllib3.pool") == [logging.WARNING] * 3
    assert levels("error", "my_crm", "httpx") == [logging.ERROR] * 2
    assert levels("critical", "my_crm", "httpx") == [logging.CRITICAL] * 2


def test_who_is_named_logs_as_much_as_that_and_the_closest_name_counts() -> None:
    text = "chronicle=warning,httpx=info, httpx._client=debug"
    assert levels(text, "my_crm", "httpx", "httpx._client.x", "httpcore") == [30, 20, 10, 30]
    assert levels("httpx=debug", "my_crm", "httpx") == [20, 10]
    assert levels("info,root=debug,my_crm=error", "anything", "my_crm.x", "chronicle") == [10, 40, 20]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("warn", "did you mean warning?"),
        ("INFO", "did you mean info?"),
        ("info,httpx=debgu", "did you mean debug?"),
        ("chronical=info", "did you mean chronicle?"),
        ("loud", "a level (debug, info, warning, error, critical)"),
        ("", "a level"),
        ("info,", "a level"),
        ("=info", "a level"),
        ("info,debug", "only once"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match="a level") as refused:
        parse_levels(text)
    assert meant in str(refused.value)


def test_the_brokers_clients_are_silent_until_they_are_named() -> None:
    pika, channel = logging.getLogger("pika"), logging.getLogger("pika.channel")
    root, before = logging.getLogger(), logging.getLogger().level
    try:
        LogLevels(logging.DEBUG).apply()
        assert not pika.isEnabledFor(logging.ERROR)
        parse_levels("info,pika=debug").apply()
        assert pika.isEnabledFor(logging.DEBUG)
        assert not channel.isEnabledFor(logging.DEBUG)  # it would show bodies
        assert channel.isEnabledFor(logging.INFO)
    finally:
        root.setLevel(before)
        for logger in (pika, channel):
            logger.setLevel(logging.NOTSET)


CONSUME = "consume --queue q"


@pytest.mark.parametrize(
    ("line", "environ", "terminal", "json"),
    [
        (CONSUME, {}, False, True),
        (CONSUME, {}, True, False),
        (f"{CONSUME} --log-format json", {}, True, True),
        (f"{CONSUME} --log-format=json --nonsense", {}, True, True),
        (f"{CONSUME} --log-format pretty", {}, False, False),
        (f"{CONSUME} --log-format json --log-format pretty", {}, False, False),
        (f"{CONSUME} --log-format nonsense", {}, False, True),
        (f"{CONSUME} --log-format", {}, False, True),
        (f"{CONSUME} --live", {}, False, False),
        (f"{CONSUME} --live --no-live", {}, False, True),
        (CONSUME, {"CHRONICLE_LOG_FORMAT": "json"}, True, True),
        (CONSUME, {"CHRONICLE_LOG_FORMAT": "pretty"}, False, False),
        (CONSUME, {"CHRONICLE_LIVE": "true"}, False, False),
        (f"{CONSUME} --log-format pretty", {"CHRONICLE_LOG_FORMAT": "json"}, True, False),
        ("--env-file consume replay -- --log-format pretty", {}, False, True),
        ("replay", {}, False, True),
        ("publish --log-format json", {}, False, False),
        ("dlq list --queue q", {"CHRONICLE_LOG_FORMAT": "json"}, False, False),
        ("dlq redrive --queue q", {}, False, False),
        ("dlq redrive --queue q --verify my_crm:sync", {}, False, True),
        ("dlq redrive --queue q", {"CHRONICLE_DLQ_VERIFY": "my_crm:sync"}, False, True),
        ("dlq", {}, False, False),
        ("--help", {}, False, False),
        ("", {}, False, False),
    ],
)
def test_the_form_is_known_before_the_options_are_read(
    line: str, environ: dict[str, str], terminal: bool, json: bool
) -> None:
    assert says_json(line.split(), environ, lambda: terminal) is json
