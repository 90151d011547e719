"""pika's errors in words: what the operator must change, and what merely passes (RB2, RB14, RB15, RB19)."""

from __future__ import annotations

import socket
import ssl

import pytest
from pika import exceptions
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorAMQPHandshakeError,
)

from chronicle.telemetry.redaction import redact
from chronicle.transports.hosts import ENCODE
from chronicle.transports.rabbitmq.parameters import (
    Oversize,
    connection_parameters,
    oversize,
    place,
    reason,
    refusal,
)
from chronicle.transports.seam import Connector

SECRET = "hunter22"
WHICH = "queue 'orders' in vhost '/'"
NO_QUEUE = exceptions.ChannelClosedByBroker(404, f"NOT_FOUND - no {WHICH}")
ACCESS = "NOT_ALLOWED - access to vhost 'a' refused for user"
CONNECTOR = Connector(f"amqps://me:{SECRET}@broker.example/live?heartbeat=7", "orders")


def nested(error: BaseException) -> BaseException:
    """As pika's asynchronous adapters wrap it."""
    return exceptions.AMQPConnectionError(
        AMQPConnectionWorkflowFailed([AMQPConnectorAMQPHandshakeError(error)])
    )


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = 18, "self-signed certificate"
    return error


def probably(guess: type[exceptions.AMQPConnectionError], code: int, text: str) -> BaseException:
    """What pika makes of a login that the broker ended."""
    return guess(repr(exceptions.ConnectionClosedByBroker(code, text)))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (exceptions.ConnectionClosedByBroker(403, "ACCESS_REFUSED"), "password was refused"),
        (exceptions.ConnectionClosedByBroker(530, "NOT_ALLOWED"), "virtual host"),
        (
            exceptions.ConnectionClosedByBroker(530, "NOT_ALLOWED - number of channels opened (2) …"),
            "too few channels",
        ),
        (probably(exceptions.ProbableAuthenticationError, 403, "ACCESS_REFUSED"), "password was refused"),
        (
            probably(exceptions.ProbableAccessDeniedError, 530, "NOT_ALLOWED - vhost a not found"),
            "virtual host",
        ),
        (
            probably(exceptions.ProbableAccessDeniedError, 530, "NOT_ALLOWED - vhost is down not found"),
            "virtual host",
        ),
        (
            probably(
                exceptions.ProbableAccessDeniedError, 530, f"{ACCESS} 'connection limit (1) is reached'"
            ),
            "virtual host",
        ),
        (probably(exceptions.ProbableAccessDeniedError, 530, f"{ACCESS} 'channels'"), "virtual host"),
        (exceptions.AuthenticationError("PLAIN"), "does not offer"),
        (NO_QUEUE, "there is no queue 'orders'"),
        (exceptions.ChannelClosedByBroker(403, "ACCESS_REFUSED"), "access to the queue 'orders'"),
        (exceptions.ChannelClosedByBroker(405, "RESOURCE_LOCKED"), "locked"),
        (exceptions.ChannelClosedByBroker(406, "PRECONDITION_FAILED - inequivalent arg"), "inequivalent"),
        (exceptions.ProtocolVersionMismatch(), "does not speak AMQP"),
        (untrusted(), "self-signed certificate"),
    ],
)
def test_refusals(error: BaseException, said: str) -> None:
    """RB14: configuration errors end the start, however deep pika hides them."""
    for shape in (error, nested(error)):
        found = refusal(shape, CONNECTOR)
        assert found is not None
        assert said in found.problem
        assert found.problem.startswith("broker.example:5671/live: ")
        assert found.remedy
        assert SECRET not in found.problem + found.remedy


def test_a_missing_password_is_named() -> None:
    """D-9: `user name or password was refused` sends people looking for a wrong one."""
    refused = exceptions.ConnectionClosedByBroker(403, "ACCESS_REFUSED")
    found = refusal(refused, Connector("amqp://me@broker.example/", "orders"))
    assert found is not None
    assert found.problem.endswith("no password was given")
    assert found.remedy == "set CHRONICLE_PASSWORD"


def test_the_default_user_is_not_named_because_it_would_be_masked() -> None:
    """Z4: whoever logs in as guest has a password that is its name."""
    refused = exceptions.ConnectionClosedByBroker(403, "ACCESS_REFUSED")
    found = refusal(refused, Connector("amqp://guest:guest@broker.example/", "orders"))
    assert found is not None
    assert "default user works on localhost only" in found.remedy
    assert "guest" not in found.remedy


def test_a_missing_queue_comes_with_the_command_that_makes_it() -> None:
    """D-9."""
    found = refusal(NO_QUEUE, Connector("amqp://h/", "my orders"))
    assert found is not None
    assert found.remedy.startswith("create it: chronicle declare --queue 'my orders'")


def test_the_remedy_for_a_url_is_printed_in_full() -> None:
    """Z4: what takes secrets out of a text leaves it alone."""
    assert redact(f"  remedy: {ENCODE}") == f"  remedy: {ENCODE}"


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ProbableAuthenticationError("StreamLostError: ('Transport indicated EOF',)"),
        exceptions.ProbableAccessDeniedError("StreamLostError: ('Transport indicated EOF',)"),
        exceptions.IncompatibleProtocolError("StreamLostError: ('Transport indicated EOF',)"),
        exceptions.ChannelClosedByBroker(406, "PRECONDITION_FAILED - delivery acknowledgement timed out"),
        exceptions.ChannelClosedByBroker(406, "PRECONDITION_FAILED - unknown delivery tag 7"),
        exceptions.ChannelClosedByBroker(404, f"NOT_FOUND - home node 'a' of durable {WHICH} is down or …"),
        exceptions.ChannelClosedByBroker(404, f"NOT_FOUND - {WHICH} has crashed and failed to restart"),
        exceptions.ChannelClosedByBroker(404, f"NOT_FOUND - {WHICH} process is stopped by supervisor"),
        exceptions.ChannelClosedByBroker(404, f"NOT_FOUND - failed to perform operation on {WHICH} due to …"),
        exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED"),
        probably(exceptions.ProbableAuthenticationError, 320, "CONNECTION_FORCED - broker forced …"),
        probably(exceptions.ProbableAccessDeniedError, 530, f"{ACCESS} 'u': connection limit (1) is reached"),
        probably(
            exceptions.ProbableAccessDeniedError, 541, f"INTERNAL_ERROR - {ACCESS} 'u': vhost 'a' is down"
        ),
        exceptions.ConnectionClosedByBroker(530, f"{ACCESS} 'u': vhost 'a' is down"),
        exceptions.StreamLostError("lost"),
        exceptions.AMQPHeartbeatTimeout("missed"),
        ConnectionRefusedError(111, "Connection refused"),
        socket.gaierror(-2, "Name or service not known"),
        ssl.SSLError(1, "[SSL: UNEXPECTED_EOF] unexpected"),
    ],
)
def test_what_passes_is_no_refusal(error: BaseException) -> None:
    """RB15, RB19: a restart, a cut or a timeout is tried again, and has a reason in a few words."""
    for shape in (error, nested(error)):
        assert refusal(shape, CONNECTOR) is None
        assert 0 < len(reason(shape)) < 120


def test_parameters() -> None:
    """RB5, RB6, Z9: heartbeats on, blocked connections bounded, certificates and host name verified."""
    parameters = connection_parameters(CONNECTOR, name="box.chronicle")
    assert (parameters.host, parameters.port, parameters.virtual_host) == ("broker.example", 5671, "live")
    assert (parameters.heartbeat, parameters.connection_attempts) == (7, 1)
    assert parameters.blocked_connection_timeout
    assert parameters.ssl_options is not None
    assert parameters.ssl_options.context.verify_mode is ssl.CERT_REQUIRED
    assert parameters.ssl_options.context.check_hostname
    assert parameters.ssl_options.server_hostname == "broker.example"
    assert SECRET not in repr(parameters)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://u:p@h", "h:5672/"),
        ("amqp://h/%2F", "h:5672/"),
        ("amqps://h/live", "h:5671/live"),
        ("amqp://[::1]:9/a%0Ab", "[::1]:9/a%0Ab"),
    ],
)
def test_place(url: str, shown: str) -> None:
    """R-000-18: host and vhost, nothing else, nothing that breaks a line."""
    assert place(Connector(url, "q")) == shown


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (
            exceptions.ChannelClosedByBroker(
                406, "PRECONDITION_FAILED - message size 17 is larger than configured max size 16"
            ),
            Oversize(17, 16),
        ),
        (
            exceptions.ChannelClosedByBroker(
                406, "PRECONDITION_FAILED - message size 17 is larger than max size 16"
            ),
            Oversize(17, 16),
        ),
        (exceptions.ChannelClosedByBroker(406, "PRECONDITION_FAILED - inequivalent arg"), None),
        (exceptions.ConnectionClosedByBroker(406, "message size 17 is larger than max size 16"), None),
        (None, None),
    ],
)
def test_a_message_that_is_too_large(error: BaseException | None, found: Oversize | None) -> None:
    """RB7: told from what is wrong with a queue; the sizes and the setting are named."""
    assert oversize(error) == found
    assert found is None or "17 bytes" in str(found)
    assert found is None or "max_message_size" in str(found)
