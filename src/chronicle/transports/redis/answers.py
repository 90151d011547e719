"""What a Redis server's errors mean: which of them an operator must mend, and which pass.

Rule 1: a refusal is what no further try can change: a login, a permission, a key of the wrong type. A server
        that loads its data, is a replica for now, or has given a slot away is only away.
Rule 2: the server's text is shown only as its first word, or in words of ours: it may quote an argument.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

from redis import exceptions

from chronicle.errors import BrokerRefused, BrokerUnreachable, ChronicleError, ConnectionLost, NotAllowed
from chronicle.transports.redis.address import Address, Kind
from chronicle.transports.tls import certificate_refused, in_words, tls_refused

TLS_PORT: Final = "rediss needs a server with tls-port"
NOGROUP: Final = "NOGROUP"
OOM: Final = "OOM"
WRONG_TYPE: Final = "WRONGTYPE"
BUSY_GROUP: Final = "BUSYGROUP"

# Errors that pass: the word the server begins with, and what it means.
PASSING: Final = {
    "LOADING": "the server is loading its data into memory",
    "READONLY": "the server is a replica now: another one has become the master",
    "MASTERDOWN": "the server is a replica that has lost its master",
    "UNBLOCKED": "the server is a replica now: another one has become the master",
    "CLUSTERDOWN": "the cluster is down or has no node for this slot",
    "MOVED": "another node of the cluster has the slot now",
    "ASK": "the slot is on its way to another node of the cluster",
    "TRYAGAIN": "the slot is on its way to another node of the cluster",
    "BUSY": "a script of somebody else keeps the server busy",
    "NOREPLICAS": "the server accepts no writes: too few replicas are connected",
    "MISCONF": "the server accepts no writes: it cannot save its data to disk",
    "OOM": "the server is out of memory (maxmemory): give it more, or delete something",
    "STALE": "the server is a replica that has lost its master",
}


# Before Redis 7, an error inside a script is an ERR that quotes it behind the line of the script.
_IN_SCRIPT: Final = re.compile(r"ERR Error running script .*@user_script: ?\d+: -?([A-Z]{2,20}) ", re.DOTALL)


def word_of(error: Exception) -> str:
    """The first word of an error, by which servers name its kind: NOAUTH, READONLY; ERR for any other."""
    text = str(error)
    inside = _IN_SCRIPT.match(text)
    word = inside[1] if inside else text.partition(" ")[0]
    return word if word.isascii() and word.isupper() and len(word) <= 20 else "ERR"


def is_gone(error: Exception) -> bool:
    """Whether the stream or its group does not exist any more."""
    return word_of(error) == NOGROUP or "no such key" in str(error).lower()


def lacks_command(error: Exception) -> bool:
    """Whether the server does not know the command."""
    return "unknown command" in str(error).lower()


def refusal(error: Exception, address: Address) -> BrokerRefused | None:
    """The server's answer as something the operator must change; None when trying again makes sense."""
    where, text = address.place, str(error)
    match word_of(error):
        case "NOAUTH":
            return BrokerRefused(
                f"{where}: the server wants a password",
                "write the user in the URL, redis://default@host if there is no other, and set "
                "CHRONICLE_PASSWORD",
            )
        case "WRONGPASS" if not address.password:
            return BrokerRefused(
                f"{where}: the login was refused: no password was given", "set CHRONICLE_PASSWORD"
            )
        case "WRONGPASS":
            return BrokerRefused(
                f"{where}: user name or password was refused",
                "check the user in the URL and the password in CHRONICLE_PASSWORD",
            )
        case "NOPERM":
            return NotAllowed(
                f"{where}: this user {_denied(error)}",
                "docs/redis.md lists the commands and keys an ACL user needs",
            )
        case "WRONGTYPE":
            return BrokerRefused(
                f"{where}: a key of this queue is not a stream", "check --queue; chronicle needs a stream"
            )
        case "MOVED" if address.kind is Kind.SINGLE:
            return BrokerRefused(
                f"{where}: the server is a node of a cluster, and another one has this queue",
                "write redis+cluster:// instead of redis://",
            )
        case "ERR" if "can't run this command" in text:
            return NotAllowed(
                f"{where}: this user may not run a command that chronicle's scripts need",
                "docs/redis.md lists the commands and keys an ACL user needs",
            )
        case "NOPROTO":
            return BrokerRefused(f"{where}: the server is too old", "use Redis 6.2 or newer, or Valkey")
        case "ERR" if "AUTH" in text and "called without any password" in text:
            return BrokerRefused(
                f"{where}: a password was given, but the server has none for this user",
                "leave the user and CHRONICLE_PASSWORD out",
            )
        case "ERR" if lacks_command(error):
            return BrokerRefused(f"{where}: the server lacks a command", "use Redis 6.2 or newer, or Valkey")
        case "ERR" if "DB index" in text or "invalid DB" in text:
            return BrokerRefused(
                f"{where}: there is no such database", "check the number at the end of the URL"
            )
        case "ERR" if "cluster support disabled" in text:
            return BrokerRefused(f"{where}: the server is not part of a cluster", "write redis:// instead")
        case "DENIED":
            return BrokerRefused(
                f"{where}: the server is in protected mode and accepts only this machine's own connections",
                "give it a password or a bind address",
            )
    return None


def concerning(error: Exception, command: Sequence[str | bytes | int | float]) -> None:
    """Remember which keys or channel a command that was denied is about: the server does not say."""
    if word_of(error) == "NOPERM":
        for name in _names_in(command):
            error.add_note(name)


def _names_in(command: Sequence[str | bytes | int | float]) -> list[str]:
    """The keys of a command, or its channel, as far as chronicle uses it."""
    match command:
        case ["EVAL" | "EVALSHA", _, int() as number, *rest]:
            found = rest[:number]
        case ["XGROUP" | "XINFO", _, key, *_]:
            found = [key]
        case [*before, "STREAMS", key, _] if before:
            found = [key]
        case [_, key, *_]:
            found = [key]
        case _:
            found = []
    return [name for name in found if isinstance(name, str)]


def _denied(error: Exception) -> str:
    """What an ACL denies: the command if the server names it, else which keys or channel it was about."""
    text = str(error)
    command = text.partition("run the '")[2].partition("'")[0]
    if command.replace("|", "").replace("-", "").isalnum() and len(command) <= 40:
        return f"may not run {command.upper()}"
    if command:
        return "may not do that"
    kind = "channel" if "channel" in text else "key"
    match getattr(error, "__notes__", []):
        case []:
            return f"may not use a {kind} that is needed"
        case [name]:
            return f"may not use the {kind} {name!r}"
        case names:
            return f"may not use one of the {kind}s {', '.join(map(repr, names))}"


def why_not_connected(error: Exception, address: Address) -> ChronicleError:
    """What to raise when a connection could not be made, or was lost while logging in."""
    where = address.place
    if isinstance(error, ssl.SSLCertVerificationError):
        return certificate_refused(error, where)
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return certificate_refused(cause, where)
    if address.tls and (refused := tls_refused(f"{error} {cause}", where, TLS_PORT)):
        return refused
    if isinstance(error, exceptions.ResponseError | exceptions.AuthenticationError):
        found = refusal(error, address)
        if found is not None:
            return found
    return BrokerUnreachable(f"{where}: {reason(error)}")


def untrusted(text: str, address: Address) -> ChronicleError | None:
    """What to raise when TLS ended with the first question: perhaps our certificate is missing or wrong."""
    if refused := tls_refused(text, address.place, TLS_PORT):
        return refused
    if "EOF" in text.upper():
        return BrokerUnreachable(
            f"{address.place}: the server ended the TLS connection without an answer; does it want a client "
            "certificate (--tls-cert, --tls-key)?",
            "",
        )
    return None


def lost(error: Exception, address: Address) -> ConnectionLost:
    """An error on a connection that was working; the same answer while opening may be a refusal."""
    return ConnectionLost(f"{address.place}: {reason(error)}")


def reason(error: Exception) -> str:
    """Why there is no connection, in a few words."""
    word = word_of(error)
    if word in PASSING:
        return PASSING[word]
    if isinstance(error, exceptions.BusyLoadingError):  # redis-py takes the word away
        return PASSING["LOADING"]
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return "no answer in time"
    if isinstance(error, exceptions.InvalidResponse):
        return "the server there does not speak Redis' protocol"
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, OSError) and (words := in_words(cause)):
            return words
    if isinstance(error, exceptions.MaxConnectionsError) or "max number of clients" in str(error):
        return "the server has no room for another client (maxclients)"
    if isinstance(error, exceptions.ResponseError):
        return f"the server answered {word}"
    return "the connection broke"
