"""What a queue needs in Kafka: its topic, and the dead-letter topic beside it.

Rule 1: nothing is ever changed or deleted. Both topics are looked at before the first one is created; if one
        exists with another number of partitions or copies than was asked for, nothing is created.
Rule 2: the dead-letter topic has as many partitions as the topic, keeps its records for ever, and takes
        slightly larger ones: a dead letter is the record and what is said about its death.
Rule 3 (K5): a consumer does not start unless both exist and this user may use them and the group; otherwise
        the first failure would show that there is no place for it. Nor if the second is known to be
        compacted: it would lose letters that the brokers have confirmed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import monotonic, sleep
from typing import Final

from confluent_kafka.admin import AclOperation

from chronicle.core.notice import Notice
from chronicle.core.topology import Done, Queue, Step
from chronicle.errors import BrokerRefused, BrokerUnreachable, NoSuchQueue
from chronicle.transports.kafka.admin import Admin, Topic
from chronicle.transports.kafka.choices import Choices, choices_of, dead_letter_topic
from chronicle.transports.kafka.problems import RIGHTS
from chronicle.transports.seam import Connector, never

LARGEST: Final = "max.message.bytes"
RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
POLICY: Final = "cleanup.policy"
FOR_EVER: Final = "-1"
KEPT: Final = {RETENTION: FOR_EVER, RETENTION_BYTES: FOR_EVER, POLICY: "delete"}  # of dead letters
HEADERS_ROOM: Final = 16 * 1024  # bytes, more than chronicle's headers ever have
APPEARS: Final = 10.0  # seconds until all brokers know a new topic
EXPIRE: Final = "kafka.dead_letters_expire"
SMALL: Final = "kafka.dead_letters_small"


def planned(connector: Connector) -> tuple[Step, ...]:
    """The topic and its dead-letter topic, whatever else was asked for."""
    choices = choices_of(connector.choices, connector.queue)
    asked = {"partitions": choices.partitions, "replication": choices.replication}
    shape = {name: number for name, number in asked.items() if number is not None}
    kept = {"partitions": f"as {connector.queue}", **shape, **KEPT}
    return (
        Queue(connector.queue, shape, durable=None),
        Queue(dead_letter_topic(connector.queue), kept, durable=None),
    )


def make_topics(connector: Connector, stopping: Callable[[], bool] = never) -> tuple[tuple[Step, Done], ...]:
    """Create what is missing of the two topics; BrokerRefused when one is there in another shape."""
    main, letters = planned(connector)
    choices = choices_of(connector.choices, connector.queue)
    queue, dead_letters = connector.queue, dead_letter_topic(connector.queue)
    with Admin(connector, stopping) as admin:
        there = admin.topics((queue, dead_letters))
        conflicts = list(_conflicts(there, queue, choices))
        if conflicts:
            raise BrokerRefused(
                f"{admin.address.place}: {'; '.join(conflicts)}; nothing was changed",
                "ask for what exists; or change it with Kafka's own tools: with more partitions, a key goes "
                "to another one",
            )
        made_main = queue not in there and admin.create(queue, choices.partitions, choices.replication, {})
        made_letters = False
        if dead_letters not in there:
            topic = _appeared(admin, queue, stopping)
            limit = admin.settings((queue,)).get(queue, {}).get(LARGEST, "")
            config = dict(KEPT)
            if limit.isdigit():
                config[LARGEST] = str(min(int(limit) + HEADERS_ROOM, 2**31 - 1))
            made_letters = admin.create(dead_letters, len(topic.partitions), choices.replication, config)
        if made_main or made_letters:
            _appeared(admin, dead_letters, stopping)
    return (main, _done(made_main)), (letters, _done(made_letters))


def check_topics(connector: Connector, stopping: Callable[[], bool], notices: deque[Notice]) -> Topic:
    """Check that a consumer finds what it needs; the topic as it is.

    What an operator should know about it goes to `notices`. Raises NoSuchQueue when a topic is missing,
    BrokerRefused when this user may not use one, BrokerUnreachable when there is no answer.
    """
    queue, dead_letters = connector.queue, dead_letter_topic(connector.queue)
    with Admin(connector, stopping) as admin:
        there = admin.topics((queue, dead_letters))
        where = admin.address.place
        if queue not in there:
            raise NoSuchQueue(
                f"{where}: there is no topic {queue!r}",
                "check --queue, or create it: chronicle declare, or --declare",
            )
        _check_right(where, there[queue], AclOperation.READ, "read")
        if dead_letters not in there:
            raise NoSuchQueue(
                f"{where}: there is no topic {dead_letters!r} for the dead letters",
                "create it: chronicle declare, or --declare",
            )
        _check_right(where, there[dead_letters], AclOperation.WRITE, "write to")
        admin.check_group(choices_of(connector.choices, queue).group)
        settings = admin.settings((queue, dead_letters))
        if "compact" in settings.get(dead_letters, {}).get(POLICY, ""):
            raise BrokerRefused(
                f"{where}: the topic {dead_letters!r} is compacted ({POLICY}): a dead letter would delete "
                "those before it that have its key, and one without a key would not be taken",
                f"set its {POLICY} to delete",
            )
        notices.extend(_doubts(queue, dead_letters, settings))
    return there[queue]


def check_target(connector: Connector, stopping: Callable[[], bool] = never) -> int | None:
    """Check that a publisher may write to the topic; the largest record it takes, if this user may know."""
    with Admin(connector, stopping) as admin:
        topic = admin.topic(connector.queue)
        _check_right(admin.address.place, topic, AclOperation.WRITE, "write to")
        limit = admin.settings((topic.name,)).get(topic.name, {}).get(LARGEST, "")
    return int(limit) if limit.isdigit() else None


def has_topic(connector: Connector, stopping: Callable[[], bool] = never) -> bool:
    """Whether there is such a topic, as far as this user may see."""
    with Admin(connector, stopping) as admin:
        return connector.queue in admin.topics((connector.queue,))


def _check_right(where: str, topic: Topic, right: AclOperation, verb: str) -> None:
    if topic.allowed is not None and not topic.allowed & {right, AclOperation.ALL}:
        raise BrokerRefused(f"{where}: this user may not {verb} the topic {topic.name!r}", RIGHTS)


def _conflicts(there: Mapping[str, Topic], queue: str, choices: Choices) -> Iterator[str]:
    """What exists in another shape than was asked for. Dead letters may lie in any number of partitions."""
    topic = there.get(queue)
    if topic is not None:
        asked = {"partitions": choices.partitions, "copies": choices.replication}
        found = {"partitions": len(topic.partitions), "copies": topic.replication}
        for what, number in asked.items():
            if number is not None and number != found[what]:
                yield f"topic {queue} has {found[what]} {what}, but {number} were asked for"


def _doubts(queue: str, dead_letters: str, settings: Mapping[str, Mapping[str, str]]) -> Iterator[Notice]:
    kept = settings.get(dead_letters, {})
    for name, bound in ((RETENTION, "after {} ms"), (RETENTION_BYTES, "when a partition has {} bytes")):
        if (limit := kept.get(name, FOR_EVER)) != FOR_EVER:
            text = f"the topic {dead_letters} deletes dead letters {bound.format(limit)} ({name})"
            yield Notice(EXPIRE, logging.WARNING, text)
    largest, room = settings.get(queue, {}).get(LARGEST, ""), kept.get(LARGEST, "")
    if largest.isdigit() and room.isdigit() and int(room) < int(largest):
        yield Notice(
            SMALL,
            logging.WARNING,
            f"the topic {dead_letters} takes records of {room} bytes, and {queue} has them up to {largest}: "
            f"a larger one that fails would end the run; raise its {LARGEST}",
        )


def _appeared(admin: Admin, name: str, stopping: Callable[[], bool]) -> Topic:
    """A topic that was just created, once the brokers know it."""
    until = monotonic() + APPEARS
    while True:
        found = admin.topics((name,)).get(name)
        if found is not None and found.partitions:
            return found
        if stopping() or monotonic() > until:
            raise BrokerUnreachable(
                f"{admin.address.place}: the brokers do not know the new topic {name!r} yet", "try again"
            )
        sleep(0.1)


def _done(made: bool) -> Done:
    return Done.MADE if made else Done.THERE
