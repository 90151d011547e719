"""Who keeps the dead letters of a queue: chronicle, or else the broker (D-22, RB8). Found out at every open.

Rule 1: chronicle, if `QUEUE.dlq` is there and this user may publish; unless the operator wants it otherwise.
Rule 2: once chronicle is known to be able to, it stays so for the whole run. A queue that is deleted
        meanwhile holds its dead letters up (courier.py); a reconnect must not hand them to a broker that
        may delete them.
Rule 3: what is left to the broker counts as rejected, unless the broker's management has said that it is
        kept. A queue known to lose messages is refused, unless the operator allows it.
Rule 4: the log is told which of the two, and why: once, and again when it changes.
"""

from __future__ import annotations

import logging
import shlex
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pika import exceptions

from chronicle.core.deadletters.prospect import Keeping, Prospect
from chronicle.core.notice import Notice
from chronicle.core.queues import dead_letter_queue, is_too_long
from chronicle.errors import BrokerRefused, SettingError
from chronicle.transports.rabbitmq.connection import Connection
from chronicle.transports.rabbitmq.options import DEAD_LETTERS, Way
from chronicle.transports.rabbitmq.parameters import is_missing, out_of_reach, place, reason
from chronicle.transports.rabbitmq.session import Session
from chronicle.transports.seam import Connector, DeadLetterKeeper

if TYPE_CHECKING:
    from chronicle.transports.rabbitmq.courier import Courier

KEEPERS: Final = {
    Way.AUTO: DeadLetterKeeper.EITHER,
    Way.CHRONICLE: DeadLetterKeeper.TRANSPORT,
    Way.BROKER: DeadLetterKeeper.BROKER,
}
EVENTS: Final = {
    Keeping.KEPT: ("queue.dead_letters_kept", logging.INFO),
    Keeping.VANISHES: ("queue.dead_letters_vanish", logging.WARNING),
    Keeping.UNKNOWN: ("queue.dead_letters_unknown", logging.WARNING),
}
FOREIGN: Final = (403, 405)  # not ours to use, or exclusively somebody else's
NOT_ASKED: Final = Prospect(Keeping.UNKNOWN, "a consumer cannot see it")


class Letters:
    """The dead letters of one queue; for one who only looks at it there are none."""

    def __init__(self, connector: Connector, notices: deque[Notice], *, only_looks: bool = False) -> None:
        terms = connector.letters
        self.target = dead_letter_queue(connector.queue)
        self.way = Way.BROKER if only_looks else Way(connector.choices.get(DEAD_LETTERS, Way.AUTO))
        self.moves = False  # chronicle moves them, since the queue was opened
        self._connector = connector
        self._place = place(connector)
        self._notices = notices
        self._only_looks = only_looks
        self._prospect = _declared(connector) or terms.prospect or NOT_ASKED
        self._needed_by = "--dead-letters chronicle" if self.way is Way.CHRONICLE else terms.needed_by
        self._obstacle = ""  # why chronicle does not move them
        self._advice = ""  # what can be done about that
        self._is_proven = False
        self._looked: Callable[[], object] | None = None  # waits for what was asked about the queue
        self._told: Notice | None = None
        if connector.declare is not None and self.way is not Way.CHRONICLE and self._would_vanish:
            raise SettingError(*self._vanishing())  # before anything is created

    @property
    def are_kept(self) -> bool:
        """Whether what is rejected is kept, as far as is known."""
        return self._prospect.keeping is Keeping.KEPT

    @property
    def must_be_read(self) -> bool:
        """However large they are: rejected unread, they would be lost where only we keep them."""
        return self.moves and not self.are_kept

    @property
    def _would_vanish(self) -> bool:
        return self._prospect.keeping is Keeping.VANISHES and not self._connector.letters.allow_drop

    def begin_to_look(self, session: Session, connection: Connection) -> None:
        """Begin to look whether there is a queue for dead letters, passively (RB14)."""
        self._looked = None
        if self.way is not Way.BROKER and not self._is_proven and not is_too_long(self.target):
            self._looked = session.begin_to_try(
                connection,
                lambda channel, done: channel.queue_declare(self.target, passive=True, callback=done),
            )

    def send_for_courier(self, session: Session) -> Courier | None:
        """Begin to connect for what chronicle moves, retries included, if there is such a thing.

        Raises BrokerRefused when dead letters must be moved and there is no queue for them.
        """
        target = self._found()
        if not (target or self._connector.retry_delays):
            return None
        from chronicle.transports.rabbitmq.courier import Courier  # nobody else needs it

        return Courier(self._connector, session, self._notices, target)

    def arranged(self, courier: Courier | None) -> Courier | None:
        """Wait for the courier, and tell who keeps them from now on; None if everybody can do without it.

        Raises BrokerRefused when it may not publish and is needed, or when dead letters would vanish (F8).
        """
        if courier is not None and not self._can_work(courier):
            courier = None
        self.moves = courier is not None and courier.keeps_dead_letters
        if courier is not None and self.moves and courier.proven:
            self._is_proven = True
        if not self.moves and self._would_vanish:
            problem, remedy = self._vanishing()
            raise BrokerRefused(f"{self._place}: {problem}", remedy)
        notice = self._by_chronicle() if self.moves else self._by_broker()
        if notice != self._told and not self._only_looks:
            self._told = notice
            self._notices.append(notice)
        return courier

    def _found(self) -> str:
        """The queue that chronicle is to move them to, if it is there."""
        if self.way is Way.BROKER:
            self._obstacle = "--dead-letters broker"
            return ""
        self._obstacle = "" if self._is_proven else self._why_not()
        self._advice = f", or create the queue {self.target!r} for chronicle"
        if self._obstacle and self._needed_by:
            raise BrokerRefused(
                f"{self._place}: {self._obstacle}, which {self._needed_by} needs",
                f"create it: chronicle declare --queue {shlex.quote(self.target)} --no-dead-letter, "
                "with the same --url",
            )
        return "" if self._obstacle else self.target

    def _why_not(self) -> str:
        if self._looked is None:
            return f"the name {self.target!r} is too long for a queue"
        try:
            self._looked()
        except exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code in FOREIGN:
                return f"the queue {self.target!r} cannot be used: {reason(closed)}"
            if not is_missing(closed):
                # It may be there: nothing is left to the broker for a trouble that passes.
                raise out_of_reach(self._place, f"the queue {self.target!r}", closed) from None
            return f"there is no queue {self.target!r}"
        return ""

    def _can_work(self, courier: Courier) -> bool:
        """Whether this user may write to the default exchange; raises if that must be so."""
        from chronicle.transports.rabbitmq.courier import MayNotPublish

        try:
            courier.open()
        except MayNotPublish:
            if self._needed_by or self._is_proven or self._connector.retry_delays:
                raise
            courier.leave()
            self._obstacle = "this user may not publish to the default exchange"
            self._advice = ", or let this user write to amq.default"
            return False
        return True

    # --- in words -----------------------------------------------------------------------------------

    def _by_chronicle(self) -> Notice:
        return self._notice(
            Keeping.KEPT,
            f"dead letters: chronicle moves them to the queue {self.target!r}, with the reason; a "
            "dead-letter exchange of this queue gets none of them",
        )

    def _by_broker(self) -> Notice:
        keeping, why = self._prospect.keeping, self._prospect.why
        match keeping:
            case Keeping.KEPT:
                does = f"the broker keeps them, {why}"
            case Keeping.VANISHES:
                does = f"the broker deletes them: {why}"
            case Keeping.UNKNOWN:
                check = "Check with" if self._prospect is NOT_ASKED else "Check that this is right:"
                does = (
                    "the broker decides. Whether this queue has a dead-letter exchange is not known "
                    f"({why}), and without one they are deleted. {check} --management-url{self._advice}"
                )
        return self._notice(keeping, f"dead letters: rejected ({self._obstacle}), {does}")

    def _notice(self, keeping: Keeping, text: str) -> Notice:
        facts = {"queue": self._connector.queue, "moved_by": "chronicle" if self.moves else "broker"}
        return Notice(*EVENTS[keeping], text, facts, counted=False)

    def _vanishing(self) -> tuple[str, str]:
        return (
            f"the broker would delete failed messages: {self._prospect.why}",
            f"create a queue {self.target!r}, which chronicle moves them to; or give this one a dead-letter "
            "exchange, by chronicle declare or a policy; --allow-drop accepts the loss",
        )


def _declared(connector: Connector) -> Prospect | None:
    """What is known because the queue is declared here."""
    if connector.declare is None:
        return None
    from chronicle.core.topology import Disabled  # only with --declare

    if isinstance(connector.declare.dead_letter, Disabled):
        return Prospect(Keeping.VANISHES, "--no-dead-letter was given")
    return Prospect(Keeping.KEPT, "as the queue is declared")
