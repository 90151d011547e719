"""Which server has the stream: the one that the URL names, the sentinels' master, or a node of the cluster.

Rule (S9): it is asked again at every connect, because failovers move it. A server that is found but is no
        master yet is not used: the next try finds out more.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from redis.crc import key_slot

from chronicle.errors import BrokerError, BrokerRefused, BrokerUnreachable, ChronicleError
from chronicle.transports.hosts import Host
from chronicle.transports.redis.address import Address, Kind
from chronicle.transports.redis.answers import lacks_command, refusal, word_of
from chronicle.transports.redis.connection import Wire
from chronicle.transports.seam import never


def connect(
    address: Address,
    key: str,
    context: ssl.SSLContext | None,
    *,
    name: str = "",
    stopping: Callable[[], bool] = never,
) -> Wire:
    """A connection to the server that has this key; raises BrokerRefused or a BrokerError.

    What one sentinel or node says may be out of date, so the next one is asked when it leads nowhere.
    """
    tried: set[Host] = set()
    trouble: ChronicleError = BrokerUnreachable(f"{address.place}: none could be asked")
    for host in address.hosts:
        if stopping():
            break
        try:
            found = host if address.kind is Kind.SINGLE else _ask(address, host, key, context, stopping)
            if found not in tried:
                tried.add(found)
                return _log_in(address, found, context, name, stopping)
        except (BrokerError, BrokerRefused) as error:
            trouble = error
    raise trouble


def _log_in(
    address: Address, host: Host, context: ssl.SSLContext | None, name: str, stopping: Callable[[], bool]
) -> Wire:
    wire = Wire(address, host, context, name=name, db=address.db, stopping=stopping)
    if address.kind is not Kind.SENTINEL:
        return wire
    try:
        (role,) = wire.ask(("ROLE",), stopping=stopping)
    except BaseException:
        wire.close()
        raise
    # An ACL user may lack ROLE: then the first write shows what it is.
    if not isinstance(role, Exception) and role[0] != b"master":
        wire.close()
        raise BrokerUnreachable(f"{address.place}: the server the sentinels name is no master yet", "")
    return wire


def connect_anywhere(
    address: Address,
    context: ssl.SSLContext | None,
    *,
    name: str = "",
    stopping: Callable[[], bool] = never,
) -> Wire:
    """A connection for channels: in a cluster any node will do, because each passes messages on to all."""
    if address.kind is not Kind.CLUSTER:
        return connect(address, "", context, name=name, stopping=stopping)
    trouble: Exception = BrokerUnreachable(f"{address.place}: none could be asked")
    for host in address.hosts:
        if stopping():
            break
        try:
            return Wire(address, host, context, name=name, stopping=stopping)
        except (BrokerError, BrokerRefused) as error:
            trouble = error
    raise trouble


def _ask(
    address: Address, host: Host, key: str, context: ssl.SSLContext | None, stopping: Callable[[], bool]
) -> Host:
    """Which server has the key, by the word of this sentinel or node."""
    cluster = address.kind is Kind.CLUSTER
    wire = Wire(address, host, context, login=cluster, stopping=stopping)
    try:
        if cluster:
            return _owner(wire, host, key_slot(key.encode()), address, stopping)
        return _master(wire, address, stopping)
    finally:
        wire.close()


def _master(wire: Wire, address: Address, stopping: Callable[[], bool]) -> Host:
    question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
    (answer,) = wire.ask(question, stopping=stopping)
    if isinstance(answer, Exception) and word_of(answer) == "NOAUTH":
        # Sentinels that want a login get the servers' own.
        login = (address.user, address.password) if address.user else (address.password,)
        for reply in wire.ask(("AUTH", *login), stopping=stopping):
            wire.value(reply)
        (answer,) = wire.ask(question, stopping=stopping)
    if isinstance(answer, Exception):
        found = None if lacks_command(answer) else refusal(answer, address)
        raise found or BrokerRefused(
            f"{address.place}: the server there is no sentinel",
            "check the port: sentinels are usually on 26379",
        )
    if answer is None:
        raise BrokerRefused(
            f"{address.place}: the sentinels know no service {address.service!r}",
            "check the name in the URL: SENTINEL MASTERS lists them",
        )
    return Host(answer[0].decode(), int(answer[1]))


def _owner(wire: Wire, asked: Host, slot: int, address: Address, stopping: Callable[[], bool]) -> Host:
    answer: Any = wire.value(wire.ask(("CLUSTER", "SLOTS"), stopping=stopping)[0])
    for first, last, master, *_replicas in answer:
        if first <= slot <= last:
            name = (master[0] or b"").decode()
            # A node that does not know its own name leaves it out.
            return Host(name if name not in ("", "?") else asked.name, int(master[1]))
    raise BrokerUnreachable(f"{address.place}: no node of the cluster has slot {slot} now", "")
