"""What is known about a kind of broker before connecting: one record, in the broker's own folder.

Rule 1: the catalog lists the records; no other code names a broker. Whatever differs between brokers is in
        the record, so a new broker is a new folder and one line in the catalog.
Rule 2: a record imports nothing heavy. Its functions import the client's library when they are called.
Rule 3: a reason in a record is a piece of a sentence that the command line finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from chronicle.core.deadletters.prospect import Prospect
from chronicle.core.frozen import frozen
from chronicle.core.machine import Table
from chronicle.core.order import LaneOf
from chronicle.transports.seam import Connector, Publisher, Reader, Reading, Transport

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import Done, Step

Stopping: TypeAlias = Callable[[], bool]  # turns true when nobody wants it any more


class OptionKind(StrEnum):
    """What an option of a broker takes."""

    TEXT = "text"
    FLAG = "flag"
    DURATION = "duration"  # seconds, as a float; zero is for the broker to refuse
    COUNT = "count"  # a positive int
    CHOICE = "choice"  # one of `values`


@frozen
class BrokerOption:
    """An option that a kind of broker has of its own; the command line makes the flag and the variable.

    Brokers may share a name if they agree on the kind; of a CHOICE each may have its own values.
    """

    _: KW_ONLY

    name: str  # claim_idle → --claim-idle, CHRONICLE_CLAIM_IDLE, connector.choices["claim_idle"]
    help: str  # a sentence; shown with the broker's title
    commands: frozenset[str]  # where it applies: consume, capture, publish, declare, dlq
    kind: OptionKind = OptionKind.TEXT
    metavar: str = ""
    values: tuple[str, ...] = ()  # of a CHOICE
    usual: str = ""  # the default, for the help; the transport applies it to a choice that was not made


@frozen
class UrlFacts:
    """What a URL and its settings say, once they have been checked."""

    prefetch: int | None = None  # the connector's own default (D-8)
    warnings: tuple[str, ...] = ()


@frozen
class DeadLetterCheck:
    """How to find out before the first message whether a broker keeps the dead letters left to it (RB8)."""

    ask: Callable[[Connector, str], Prospect]  # by the management URL
    check_url: Callable[[str, str], tuple[str, ...]]  # management URL, broker's URL → warnings


@frozen
class Broker:
    """One kind of broker."""

    _: KW_ONLY

    title: str  # as used in a sentence
    schemes: tuple[str, ...]
    secure_schemes: tuple[str, ...] = ()  # those of them that use TLS
    example: str  # of a URL
    more_examples: tuple[str, ...] = ()  # of URLs that find the broker in another way
    usual_url: str = ""  # the default when no URL is given; one broker in the catalog has it
    settings: Mapping[str, str] = field(default_factory=dict)  # what --set takes, with its meaning
    options: tuple[BrokerOption, ...] = ()  # its own; what was chosen is in `connector.choices`
    states: Callable[[], Mapping[str, Table]]  # the tables of its consumers, by title, for docs/states.md
    refuses: Mapping[str, str] = field(default_factory=dict)  # option that has no effect here → why
    unhonoured: Mapping[str, str] = field(default_factory=dict)  # wish of QueueOptions → what to say about it
    orders: Mapping[str, LaneOf] = field(default_factory=dict)  # its lanes
    usual_order: str = "none"  # what `--order` is when it is not given (D-23)
    marks: str = ""  # what it leaves on a message that was only looked at
    marks_mean: str = ""  # … and what follows from that
    loggers: tuple[str, ...] = ()  # of its client, which logs in many lines what chronicle logs in one
    telltale_loggers: tuple[str, ...] = ()  # of its client, whose debug lines contain whole bodies

    # URL, settings and choices; SettingError for one that is wrong, and for rules between them.
    check_url: Callable[[str, Mapping[str, str], Mapping[str, Any]], UrlFacts]
    transport: Callable[[Connector], Transport]  # not yet connected
    publisher: Callable[[Connector, Stopping], Publisher]  # connects when it is entered
    reader: Callable[[Connector, Reading], Reader]  # not yet connected
    has_queue: Callable[[Connector, Stopping], bool]  # whether it is there; looks at nothing in it
    plan: Callable[[Connector], tuple[Step, ...]]  # what `connector.declare` comes to
    declare: Callable[[Connector, Stopping], tuple[tuple[Step, Done], ...]]  # makes what is missing of it
    # Whether, with these choices, dead letters are in QUEUE.dlq whatever anybody wants; a broker with a limit
    # of its own for names checks that itself.
    keeps_beside: Callable[[Mapping[str, Any]], bool] = lambda _choices: False
    dead_letter_check: DeadLetterCheck | None = None  # None: it keeps them, or has none
