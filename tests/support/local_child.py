"""A process that works on a queue file until it is done or killed.

    python local_child.py hold URL QUEUE COUNT    claim so many, say which, acknowledge at a line of input
    python local_child.py drain URL QUEUE LOG     acknowledge one by one and log each, until there is nothing
    python local_child.py publish URL QUEUE LOG   publish numbers without end, log each when it is confirmed
    python local_child.py fill URL QUEUE BYTES    publish large bodies, with files limited to so many bytes

A log line says what is about to be tried, or what has returned: it outlives a kill.
"""

from __future__ import annotations

import itertools
import os
import resource
import sys
from collections.abc import Sequence

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import ChronicleError
from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing

DONE = Verdict(Action.ACK, "done")


def opened(url: str, queue: str) -> LocalTransport:
    transport = LocalTransport(Connector(url, queue))
    transport.open(lambda: False)
    return transport


def say(text: str) -> None:
    print(text, flush=True)


def settle(transport: LocalTransport, batch: Sequence[Delivery]) -> list[Settlement]:
    """Acknowledge these; while another process writes, the transport takes its time."""
    work = [Settlement(delivery, Synced(), DONE) for delivery in batch]
    transport.settle(work)
    while any(settlement.fate is Fate.OPEN for settlement in work):
        transport.receive(0, 0.05)
        transport.settle(())
    return work


def hold(url: str, queue: str, count: str) -> None:
    transport = opened(url, queue)
    batch = transport.receive(int(count), 30)
    say(" ".join(delivery.body.decode() for delivery in batch))
    sys.stdin.readline()
    say(" ".join(settlement.fate for settlement in settle(transport, batch)))
    sys.stdin.readline()


def drain(url: str, queue: str, log: str) -> None:
    transport = opened(url, queue)
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    say("ready")
    sys.stdin.readline()
    while (batch := transport.receive(10, 0.5)) or not transport.is_empty():
        for delivery in batch:
            os.write(fd, delivery.body + b" begun\n")
            (settled,) = settle(transport, [delivery])
            os.write(fd, b"%s %s\n" % (delivery.body, settled.fate.encode()))
    say("empty")
    sys.stdin.readline()


def publish(url: str, queue: str, log: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with LocalPublisher(Connector(url, queue)) as publisher:
        for number in itertools.count():
            name = b"%d-%d" % (os.getpid(), number)
            publisher.publish([Outgoing(name)])
            os.write(fd, name + b" confirmed\n")


def fill(url: str, queue: str, limit: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    with LocalPublisher(Connector(url, queue)) as publisher:
        for number in itertools.count():
            try:
                publisher.publish([Outgoing(b"%d " % number + b"x" * 20_000)])
            except ChronicleError as error:
                say(f"{number} {type(error).__name__}: {error}")
                return


if __name__ == "__main__":
    {"hold": hold, "drain": drain, "publish": publish, "fill": fill}[sys.argv[1]](*sys.argv[2:])
