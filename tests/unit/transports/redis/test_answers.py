"""A server's errors in words: what the operator must change, and what passes (S9)."""

from __future__ import annotations

import socket
import ssl

import pytest
from redis import exceptions

from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, NotAllowed
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.answers import (
    PASSING,
    concerning,
    is_gone,
    lost,
    reason,
    refusal,
    why_not_connected,
    word_of,
)

SECRET = "hunter22"
BEFORE_7 = "ERR Error running script (call to f_0c5a): "
ADDRESS = address_of(f"rediss://me:{SECRET}@broker.example/3")


def said(text: str) -> exceptions.ResponseError:
    return exceptions.ResponseError(text)


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("NOAUTH Authentication required.", "wants a password", "CHRONICLE_PASSWORD"),
        (
            "WRONGPASS invalid username-password pair or user is disabled.",
            "was refused",
            "CHRONICLE_PASSWORD",
        ),
        (
            "NOPERM this user has no permissions to run the 'xreadgroup' command",
            "this user may not run XREADGROUP",
            "docs/redis.md",
        ),
        (
            "NOPERM User me has no permissions to run the 'xgroup|create' command",
            "this user may not run XGROUP|CREATE",
            "docs/redis.md",
        ),
        ("NOPERM No permissions to access a key", "may not use a key", "docs/redis.md"),
        ("WRONGTYPE Operation against a key", "not a stream", "--queue"),
        ("NOPROTO unsupported protocol version", "too old", "6.2"),
        ("ERR AUTH <password> called without any password configured", "has none", "leave"),
        ("ERR unknown command 'XAUTOCLAIM', with args beginning with: ", "lacks a command", "6.2"),
        ("ERR Unknown command `XAUTOCLAIM`", "lacks a command", "6.2"),
        ("ERR DB index is out of range", "no such database", "number"),
        ("ERR invalid DB index", "no such database", "number"),
        ("ERR This instance has cluster support disabled", "not part of a cluster", "redis://"),
        ("MOVED 5798 127.0.0.1:7001", "a node of a cluster", "redis+cluster://"),
        ("ERR The user executing the script can't run this command", "may not run", "docs/redis.md"),
        ("DENIED Redis is running in protected mode because", "protected mode", "password"),
    ],
)
def test_refusals(text: str, problem: str, remedy: str) -> None:
    """D-9: each has its remedy."""
    found = refusal(said(text), ADDRESS)
    assert isinstance(found, BrokerRefused)
    assert found.problem.startswith("broker.example:6379/3: ")
    assert problem in found.problem
    assert remedy in found.remedy
    assert SECRET not in f"{found.problem} {found.remedy}"


@pytest.mark.parametrize("word", sorted({*PASSING, "NOGROUP", "OOM", "ERR"} - {"MOVED"}))
def test_what_passes_is_no_refusal(word: str) -> None:
    assert refusal(said(f"{word} something"), ADDRESS) is None
    assert isinstance(why_not_connected(said(f"{word} something"), ADDRESS), BrokerUnreachable)


@pytest.mark.parametrize(("word", "meaning"), list(PASSING.items()))
def test_what_passes_is_told_in_words(word: str, meaning: str) -> None:
    assert reason(said(f"{word} 3999 127.0.0.1:6381")) == meaning
    assert str(lost(said(f"{word} x"), ADDRESS)) == f"broker.example:6379/3: {meaning}"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("READONLY You can't write against a read only replica.", "READONLY"),
        ("NOGROUP No such key 'a' or consumer group 'b'", "NOGROUP"),
        ("ERR no such key", "ERR"),
        (f"{BEFORE_7}@user_script:2: NOGROUP No such key 'orders'", "NOGROUP"),
        (f"{BEFORE_7}@user_script:6: @user_script: 6: -OOM command not allowed when", "OOM"),
        (f"{BEFORE_7}@user_script:6: wrong number of arguments", "ERR"),
        ("ERR value '@user_script:2: NOGROUP ' is not an integer", "ERR"),
        ("Protocol error", "ERR"),
        ("", "ERR"),
        ("ÄRGER x", "ERR"),
        ("A" * 21, "ERR"),
        (f"{SECRET} x", "ERR"),
    ],
)
def test_the_first_word(text: str, word: str) -> None:
    assert word_of(said(text)) == word


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("NOGROUP No such key 'orders' or consumer group 'crm'", True),
        ("ERR no such key", True),
        ("ERR no such key script: 1d4c, on @user_script:3.", True),
        ("WRONGTYPE Operation against a key", False),
        ("OOM command not allowed", False),
    ],
)
def test_whether_the_stream_or_its_group_is_gone(text: str, gone: bool) -> None:
    """S7."""
    assert is_gone(said(text)) is gone


@pytest.mark.parametrize(
    "text",
    [
        f"NOPERM this user has no permissions to access the '{SECRET}' key",
        f"NOPERM User me has no permissions to run the '{SECRET} x' command",
        f"NOPERM this user has no permissions to run the '{'x' * 41}' command",
        f"ERR value {SECRET} is not an integer",
        f"WRONGTYPE {SECRET}",
        f"ERR unknown command '{SECRET}'",
    ],
)
def test_what_the_server_quotes_is_not_shown(text: str) -> None:
    """Z4, Z5: it may quote an argument, which may be a key or a message."""
    found = refusal(said(text), ADDRESS)
    shown = str(lost(said(text), ADDRESS)) + (f"{found.problem} {found.remedy}" if found else "")
    assert SECRET not in shown
    assert "x" * 41 not in shown


def test_a_command_that_is_no_word_is_not_named() -> None:
    found = refusal(said("NOPERM no permissions to run the 'a\x1b[31m' command"), ADDRESS)
    assert found is not None
    assert found.problem == "broker.example:6379/3: this user may not do that"


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        (("TYPE", "orders.dlq"), "the key 'orders.dlq'"),
        (("XGROUP", "CREATE", "orders", "crm", "0"), "the key 'orders'"),
        (("XREAD", "COUNT", 1, "STREAMS", "orders", "0"), "the key 'orders'"),
        (
            ("EVAL", "return 1", 2, "orders", "orders.retry", SECRET),
            "one of the keys 'orders', 'orders.retry'",
        ),
        (("PING",), "a key that is needed"),
        (("XADD", b"orders"), "a key that is needed"),
    ],
)
def test_a_key_that_an_acl_denies_is_named(command: tuple[str | bytes | int, ...], denied: str) -> None:
    """The server does not say which; what was asked does."""
    error = said("NOPERM No permissions to access a key")
    concerning(error, command)
    found = refusal(error, ADDRESS)
    assert isinstance(found, NotAllowed)
    assert found.problem == f"broker.example:6379/3: this user may not use {denied}"


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = 18, "self-signed certificate"
    return error


def wrapped(cause: BaseException) -> exceptions.ConnectionError:
    """As redis-py raises it."""
    error = exceptions.ConnectionError(f"Error 1 connecting to broker.example:6379. {cause}.")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [untrusted(), wrapped(untrusted())])
def test_a_certificate_that_is_not_trusted_is_a_refusal(error: Exception) -> None:
    """Z9: no further try can change it."""
    found = why_not_connected(error, ADDRESS)
    assert isinstance(found, BrokerRefused)
    assert "self-signed certificate" in found.problem
    assert "--tls-ca" in found.remedy


def test_a_server_without_tls_is_a_refusal() -> None:
    found = why_not_connected(wrapped(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version")), ADDRESS)
    assert isinstance(found, BrokerRefused)
    assert "tls-port" in found.remedy


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (wrapped(ConnectionRefusedError(111, "Connection refused")), "connection refused"),
        (wrapped(socket.gaierror(-2, "Name or service not known")), "name or service not known"),
        (ConnectionResetError(104, "Connection reset by peer"), "connection reset by peer"),
        (exceptions.TimeoutError("Timeout reading from socket"), "no answer in time"),
        (TimeoutError(), "no answer in time"),
        (exceptions.InvalidResponse(f"Protocol Error: {SECRET}"), "does not speak Redis' protocol"),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "loading its data"),
        (said("ERR max number of clients reached"), "maxclients"),
        (said(f"ERR {SECRET}"), "the server answered ERR"),
        (exceptions.ConnectionError(f"it was {SECRET}"), "the connection broke"),
    ],
)
def test_what_passes_at_the_start(error: Exception, why: str) -> None:
    """Exit 3 in the end, and nothing but our own words and the system's."""
    found = why_not_connected(error, ADDRESS)
    assert isinstance(found, BrokerUnreachable)
    assert why in str(found)
    assert SECRET not in str(found)


def test_a_wrong_password_at_the_start_is_a_refusal() -> None:
    """H2: redis-py makes its own class of it and keeps the server's word."""
    error = exceptions.AuthenticationError("WRONGPASS invalid username-password pair or user is disabled.")
    assert isinstance(why_not_connected(error, ADDRESS), BrokerRefused)


def test_a_loss_is_a_loss_whatever_the_error_was() -> None:
    assert isinstance(lost(said("NOAUTH Authentication required."), ADDRESS), ConnectionLost)
