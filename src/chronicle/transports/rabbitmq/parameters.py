"""pika's connection parameters, and pika's errors in plain words.

Rule 1: a refusal is what the broker said, or what no further try can change. A connection that merely
        broke while logging in is not one, although pika calls that a probable authentication error; nor is a
        404 about a queue that is there but cannot be reached.
Rule 2: what the broker says while logging in counts by its code and its words, of which pika keeps a text
        only. No room for a connection, a virtual host that is down and a broker that stops all pass.
"""

from __future__ import annotations

import re
import shlex
import ssl
from collections.abc import Iterator
from typing import Final

import pika
from pika import exceptions

from chronicle.core.frozen import frozen
from chronicle.errors import BrokerRefused, BrokerUnreachable, NoSuchQueue, NotAllowed, OperatorError
from chronicle.transports.rabbitmq.address import Address, address_of
from chronicle.transports.seam import Connector
from chronicle.transports.tls import certificate_refused, in_words, tls_context, tls_refused

BLOCKED_TIMEOUT: Final = 60.0
BLOCKED: Final = f"the broker accepted no messages for {BLOCKED_TIMEOUT:.0f}s (memory or disk alarm)"
TLS_PORT: Final = "amqps is usually on 5671"
# A 406 that says this ends a channel, not the right to consume: the runner connects again (RB2, RB15).
PASSING: Final = ("timed out", "timeout", "unknown delivery tag")

# How a 530 ends while there is no room for another connection of a user, in a virtual host or on a node.
NO_ROOM: Final = re.compile(r"connection limit \(\d+\) is reached$")

# What pika keeps of the broker's words when the login did not succeed.
LAST_WORDS: Final = re.compile(
    r"ConnectionClosedByBroker: \((?P<code>\d+)\)(?: ['\"](?P<text>.*)['\"])?", re.DOTALL
)

# How a 404 begins when there is no such thing, from 3.8 to 4.x. Its end may be cut off, after 255 bytes.
MISSING: Final = ("NOT_FOUND - no queue", "NOT_FOUND - no exchange")

# The text of a 406 about one message; the connection and the queue are fine.
OVERSIZE: Final = re.compile(
    r"message size (?P<size>\d+) is larger than (?:configured )?max size (?P<limit>\d+)"
)


def connection_parameters(
    connector: Connector, *, name: str, heartbeat: int = 10, patient: bool = False
) -> pika.ConnectionParameters:
    """How to connect once; retrying is up to the caller. An alarm may stop one that is `patient` for long."""
    address = address_of(connector.url, connector.extras)
    context = tls_context(connector.tls) if address.tls else None
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.user, address.password, erase_on_connect=False),
        heartbeat=address.heartbeat or heartbeat,
        ssl_options=pika.SSLOptions(context, address.host) if context else None,
        connection_attempts=1,
        socket_timeout=address.timeout,
        stack_timeout=address.timeout * 1.5,
        blocked_connection_timeout=None if patient else BLOCKED_TIMEOUT,
        client_properties={"connection_name": name, "product": "chronicle"},
    )


def place(connector: Connector) -> str:
    """host:port/vhost, without secrets."""
    return address_of(connector.url, connector.extras).place


def refusal(error: BaseException, connector: Connector) -> OperatorError | None:
    """The error as something the operator must change, or None when trying again makes sense."""
    address, queue = address_of(connector.url, connector.extras), connector.queue
    for cause in causes(error):
        answer = _refused(cause, address, queue)
        if answer is not None:
            return answer
    return None


@frozen
class Oversize:
    """A message that is larger than the broker allows, in bytes; 16 MiB unless set, before 4.0 128 MiB."""

    size: int
    limit: int

    def __str__(self) -> str:
        return (
            f"a message of {self.size} bytes is too large for the broker, which allows {self.limit}: raise "
            "max_message_size in its rabbitmq.conf and restart it"
        )


def oversize(error: BaseException | None) -> Oversize | None:
    """The end of a channel as the refusal of one message for its size, if it is that."""
    if not isinstance(error, exceptions.ChannelClosedByBroker) or error.reply_code != 406:
        return None
    found = OVERSIZE.search(error.reply_text)
    return Oversize(int(found["size"]), int(found["limit"])) if found else None


def is_missing(closed: exceptions.ChannelClosedByBroker) -> bool:
    """Whether the broker said that there is no such queue or exchange.

    A 404 is also its answer about a queue that is there, while its node is away, it has crashed or is moving.
    """
    return str(closed.reply_text).startswith(MISSING)


def out_of_reach(where: str, queue: str, closed: exceptions.ChannelClosedByBroker) -> BrokerUnreachable:
    """The error about a queue that may be there: trouble that passes."""
    return BrokerUnreachable(f"{where}: {queue}: {reason(closed)}", "")


def reason(error: BaseException) -> str:
    """Why there is no connection, in a few words."""
    found = list(causes(error))
    if any(isinstance(cause, exceptions.IncompatibleProtocolError) for cause in found):
        return "it was closed before AMQP began; is the port right, and does it need amqps://?"
    for cause in reversed(found):
        if isinstance(cause, exceptions.ConnectionClosed | exceptions.ChannelClosed):
            return f"the broker said {cause.reply_code} {cause.reply_text}"
        if isinstance(cause, exceptions.ConnectionBlockedTimeout):
            return BLOCKED
        if isinstance(cause, exceptions.AMQPHeartbeatTimeout):
            return "the broker missed its heartbeats"
        if isinstance(cause, OSError) and (words := in_words(cause)):
            return words
    # pika hangs up by itself when the login takes too long, and reports no more than that.
    if any(
        isinstance(cause, TimeoutError | exceptions.ConnectionOpenAborted)
        or type(cause).__name__ == "AMQPConnectorStackTimeout"
        for cause in found
    ):
        return "no answer in time"
    if any(isinstance(cause, exceptions.StreamLostError) for cause in found):
        return "the connection broke"
    return "it broke while logging in"


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything nested in it: pika uses arguments and attributes, Python causes."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = [
            *cause.args,
            getattr(cause, "exception", None),
            *getattr(cause, "exceptions", ()),
            cause.__cause__,
            cause.__context__,
            _last_words(cause),
        ]
        waiting.extend(item for item in inner if isinstance(item, BaseException))


def _last_words(error: BaseException) -> exceptions.ConnectionClosedByBroker | None:
    """How the broker ended the login, if pika guesses what that means instead of telling."""
    if not isinstance(error, exceptions.ProbableAuthenticationError | exceptions.ProbableAccessDeniedError):
        return None
    found = LAST_WORDS.search(" ".join(map(str, error.args)))
    return exceptions.ConnectionClosedByBroker(int(found["code"]), found["text"] or "") if found else None


def _refused(error: BaseException, address: Address, queue: str) -> BrokerRefused | None:
    where = address.place
    match error:
        case ssl.SSLCertVerificationError():
            return certificate_refused(error, where)
        case ssl.SSLError():
            return tls_refused(str(error.args), where, TLS_PORT)
        case exceptions.ProbableAuthenticationError() | exceptions.ProbableAccessDeniedError():
            # A mere break, unless the broker had last words, which are among the causes.
            return tls_refused(str(error.args), where, TLS_PORT) if _last_words(error) is None else None
        case exceptions.AuthenticationError():
            return BrokerRefused(
                f"{where}: the broker does not offer login by user name and password",
                "enable the PLAIN mechanism on the broker",
            )
        case exceptions.ConnectionClosedByBroker(reply_code=403):
            return _login_refused(address)
        case exceptions.ConnectionClosedByBroker(reply_code=530, reply_text=text) if (
            "number of channels" in text
        ):
            return BrokerRefused(
                f"{where}: the broker allows too few channels: {text}",
                "a start needs three at once, and with retry:N one more for each step of --retry-delay: "
                "rabbitmqctl set_user_limits",
            )
        case exceptions.ConnectionClosedByBroker(reply_code=530, reply_text=text):
            return None if NO_ROOM.search(text) or text.endswith("is down") else _vhost_refused(where)
        case exceptions.ChannelClosedByBroker(reply_code=404) if is_missing(error):
            return NoSuchQueue(
                f"{where}: there is no queue {queue!r}",
                f"create it: chronicle declare --queue {shlex.quote(queue)}, with the same --url; or check "
                "the name, and the virtual host at the end of the URL",
            )
        case exceptions.ChannelClosedByBroker(reply_code=403, reply_text=text) if "amq.default" in text:
            return NotAllowed(
                f"{where}: this user may not write to the queue {queue!r}",
                "it needs permission to write to the default exchange, amq.default: rabbitmqctl "
                "set_permissions",
            )
        case exceptions.ChannelClosedByBroker(reply_code=403):
            return NotAllowed(
                f"{where}: access to the queue {queue!r} was refused",
                "the user needs permission to read (consume) or write (publish), or a consumer is exclusive",
            )
        case exceptions.ChannelClosedByBroker(reply_code=405):
            return BrokerRefused(
                f"{where}: the queue {queue!r} is locked by another connection",
                "it was declared exclusive; only its owner can use it",
            )
        case exceptions.ChannelClosedByBroker(reply_code=406 | 530 | 540, reply_text=text):
            if any(word in text.lower() for word in PASSING):
                return None
            return BrokerRefused(
                f"{where}: the broker does not accept this for the queue {queue!r}: {text}",
                "the queue's type or arguments do not match what was asked for",
            )
        case exceptions.ProtocolVersionMismatch():
            return _not_amqp(where)
        case exceptions.IncompatibleProtocolError():
            text = str(error.args)
            return tls_refused(text, where, TLS_PORT) if "StreamLost" in text else _not_amqp(where)
    return None


def _login_refused(address: Address) -> BrokerRefused:
    if not address.password:
        return BrokerRefused(
            f"{address.place}: the login was refused: no password was given", "set CHRONICLE_PASSWORD"
        )
    return BrokerRefused(
        f"{address.place}: user name or password was refused",
        # The default user is not named: its name is its password, too, and would be masked.
        "check the user in the URL and the password in CHRONICLE_PASSWORD; RabbitMQ's default user works on "
        "localhost only",
    )


def _vhost_refused(where: str) -> BrokerRefused:
    return BrokerRefused(
        f"{where}: the virtual host does not exist or this user may not use it",
        "check the end of the URL: / means the default virtual host",
    )


def _not_amqp(where: str) -> BrokerRefused:
    return BrokerRefused(
        f"{where}: the server there does not speak AMQP 0-9-1",
        "check the host and port: 5672 for amqp, 5671 for amqps; 15672 is the management interface",
    )
