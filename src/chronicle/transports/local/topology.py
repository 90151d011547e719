"""What a queue needs in a queue file: the queue. Dead letters, delays and counts come with the file."""

from __future__ import annotations

from pathlib import Path

from chronicle.core.topology import Done, Queue, Step
from chronicle.transports.local.address import file_of
from chronicle.transports.local.schema import create
from chronicle.transports.local.store import Store
from chronicle.transports.seam import Connector


def planned(connector: Connector) -> tuple[Step, ...]:
    """The one thing to create, whatever else was asked for."""
    return (Queue(connector.queue),)


def declare(connector: Connector) -> tuple[tuple[Step, Done], ...]:
    """Create the file and the queue, if they are missing."""
    place, path = file_of(connector.url)
    made = make_queue(path, place, connector.queue)
    return tuple((step, Done.MADE if made else Done.THERE) for step in planned(connector))


def has_queue(connector: Connector) -> bool:
    """Whether the file has this queue."""
    place, path = file_of(connector.url)
    if not path.exists():
        return False
    store = Store(path, place, durable=False)
    try:
        with store.reading(opening=True):
            return store.queue_id(connector.queue) is not None
    finally:
        store.close()


def make_queue(path: Path, place: str, name: str) -> bool:
    """Create the file and a queue in it; False if the queue existed."""
    create(path, place)
    store = Store(path, place, durable=True)
    try:
        with store.writing(opening=True):
            missing = store.queue_id(name) is None
            store.ensure_queue(name)
        store.confirm()
    finally:
        store.close()
    return missing
