"""A RabbitMQ queue as the engine sees it.

Rule 1 (RB2): a delivery belongs to the channel it came on. Every `open` is a new epoch with a ledger of its
        own; a verdict from an older one is stale and no frame is sent for it.
Rule 2 (RB3, RB4): a closed channel, a cancelled consumer and a lost connection are the same: ConnectionLost
        at the next turn. Everything is opened again.
Rule 3: a verdict that moves a message to another queue is the courier's (courier.py): it becomes final, and
        the message acknowledged, when the broker has confirmed the copy. Until then it is open and takes a
        place in the prefetch window. When the courier ends, so does the transport.
Rule 4: where dead letters are left to the broker (letters.py), one that it would lose is moved by us
        (mover.py). Where that is impossible, it is put aside: unacknowledged until the channel closes, while
        other consumers make up for its place (windows.py). Nothing waits for it.
Rule 5 (RB14): the queue is checked passively, before anything is consumed on the channel. Topology is
        created only for a connector that asks for it, before every connection: a broker that lost it gets
        it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, assert_never

from pika.channel import Channel

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.policy import broker_cannot_move, cannot_move, nobody_can_move
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import ConnectionLost
from chronicle.transports.rabbitmq.acks import TagLedger
from chronicle.transports.rabbitmq.codec.deaths import can_be_dead_lettered
from chronicle.transports.rabbitmq.codec.decode import names_trace, open_envelope
from chronicle.transports.rabbitmq.codec.encode import UNSENDABLE
from chronicle.transports.rabbitmq.codec.frames import Arrival
from chronicle.transports.rabbitmq.connection import Connection
from chronicle.transports.rabbitmq.depth import DepthGauge
from chronicle.transports.rabbitmq.letters import KEEPERS, Letters
from chronicle.transports.rabbitmq.parameters import connection_parameters, place
from chronicle.transports.rabbitmq.session import ANSWER_TIMEOUT, CLOSE_TIMEOUT, CalledOff, Session
from chronicle.transports.rabbitmq.states import RABBIT, Rabbit, RabbitEvent
from chronicle.transports.rabbitmq.streams import ask_for_stream, came_from_stream, refuse
from chronicle.transports.rabbitmq.windows import Windows
from chronicle.transports.seam import Closing, Connector, Promises

if TYPE_CHECKING:
    from chronicle.transports.rabbitmq.courier import Courier
    from chronicle.transports.rabbitmq.mover import Moved, Mover

NAME = "rabbitmq"
CONSUMER_TIMEOUT = 1800.0  # the broker's default; it tells nobody what it is set to
HOLDS = 600.0  # far below the broker's consumer_timeout, which closes the channel after half an hour (RB15)
UNREAD = "its body is too large to be read"
X_DEATH = "its x-death header would make the broker lose it"
MOVED = (Action.DEAD_LETTER, Action.RETRY)
ENDINGS = {
    Closing.LOST: RabbitEvent.FAILED,
    Closing.SETTLED: RabbitEvent.ALL_SETTLED,
    Closing.DEADLINE: RabbitEvent.DEADLINE,
}


class RabbitTransport:
    """One queue, consumed on one channel of one connection."""

    away = 0.0
    unconfirmed = 0

    def __init__(self, connector: Connector, *, only_looks: bool = False) -> None:
        self.notices: deque[Notice] = deque()
        self._letters = Letters(connector, self.notices, only_looks=only_looks)
        self.promises = Promises(
            NAME,
            dead_letters=KEEPERS[self._letters.way],
            holds=HOLDS,
            patience=CONSUMER_TIMEOUT,
            retries=bool(connector.retry_delays),
            backoff=Backoff(0.25, 10.0),
        )
        self.machine = Machine(RABBIT, Rabbit.DISCONNECTED)
        self._connector = connector
        self._place = place(connector)
        self._consumer_tag = connector.tag
        self._parameters = connection_parameters(connector, name=self._consumer_tag)
        self._epoch = 0
        self._session: Session | None = None
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._ledger: TagLedger | None = None
        self._courier: Courier | None = None
        self._mover: Mover | None = None
        self._windows: Windows | None = None
        self._gauge = DepthGauge(connector.queue)
        self._asked_for_stream = False  # once: it leaves a line in the broker's log
        self._looked_for_stream = False  # at the first message of this epoch

    @property
    def place(self) -> str:
        return self._place

    @property
    def depth(self) -> int | None:
        self._gauge.wanted = True
        return self._gauge.known

    # --- opening ------------------------------------------------------------------------------------

    def open(self, stopping: Callable[[], bool]) -> int | None:
        self._let_go(0.0)
        first = self.machine.can(RabbitEvent.CONNECT)
        self.machine.fire(RabbitEvent.CONNECT if first else RabbitEvent.BACKOFF_EXPIRED)
        try:
            return self._open(stopping)
        except CalledOff:
            self._let_go(0.0)
            return None

    def _open(self, stopping: Callable[[], bool]) -> int:
        queue = self._connector.queue
        if self._connector.declare is not None:
            from chronicle.core.topology import plan  # only for those who ask for it
            from chronicle.transports.rabbitmq.topology import declare

            declare(self._connector, plan(queue, self._connector.declare), stopping)
        self._looked_for_stream = False
        self._session = session = Session(self._connector, stopping)
        self._connection = connection = session.start(self._parameters)
        session.log_in(connection)
        self.machine.fire(RabbitEvent.OPEN)
        opened = session.begin_channel(connection)
        is_stream = self._ask_for_stream(session, connection)
        self._letters.begin_to_look(session, connection)
        channel = opened()
        channel.add_on_cancel_callback(self._cancelled)
        windows, prefetch = Windows(channel, queue, self._consumer_tag), self._connector.prefetch
        counted = self._ask_depth(session, channel)
        limited = session.begin(lambda done: windows.prefetch(prefetch, done))
        depth = counted()  # the queue is there
        if is_stream():
            raise refuse(self._place, queue)
        self._asked_for_stream = True
        courier = self._letters.send_for_courier(session)
        limited()
        self._courier = self._letters.arranged(courier)
        self.machine.fire(RabbitEvent.QOS_OK)
        self._channel, self._windows = channel, windows
        self._ledger = TagLedger(channel.channel_number)
        max_body = None if self._letters.must_be_read else self._connector.max_body
        connection.watch(channel.channel_number, prefetch, max_body)
        session.ask(lambda done: windows.consume(prefetch, done))
        self.machine.fire(RabbitEvent.CONSUME_OK)
        session.opening = False
        self._gauge.begin(connection, depth)
        return depth

    def _ask_for_stream(self, session: Session, connection: Connection) -> Callable[[], bool]:
        if self._asked_for_stream:
            return lambda: False
        return ask_for_stream(session, connection, self._connector.queue)

    def _ask_depth(self, session: Session, channel: Channel) -> Callable[[], int]:
        queue = self._connector.queue
        answer = session.begin(lambda done: channel.queue_declare(queue, passive=True, callback=done))
        return lambda: int(answer().method.message_count)

    # --- working ------------------------------------------------------------------------------------

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        connection, session = self._connection, self._session
        if connection is None or session is None:
            raise ConnectionLost("not connected")
        arrived = connection.arrived
        windows, ledger = self._windows, self._ledger
        if self._connector.widens and windows is not None and ledger is not None:
            connection.expect(windows.fit(room, ledger, arrived))
        session.poller.turn(0.0 if arrived and room else timeout)
        if self._courier is not None:
            self._courier.look()
        if self._mover is not None:
            self._mover.look()
        if self._gauge.wanted:
            self._gauge.look(monotonic())
        if session.end is not None or connection.fault or not self._is_consuming():
            self._look_for_the_end()
        if not arrived or not room:
            return ()
        if not self._looked_for_stream:
            self._look_for_stream(arrived[0])
        epoch = self._epoch
        assert ledger is not None
        deliveries = []
        for _ in range(min(room, len(arrived))):
            arrival = arrived.popleft()
            ledger.delivered(arrival.tag)
            deliveries.append(self._delivery(arrival, epoch))
        return deliveries

    def _delivery(self, arrival: Arrival, epoch: int) -> Delivery:
        return Delivery(
            arrival.body,
            queue=self._connector.queue,
            transport=NAME,
            redelivered=arrival.redelivered,
            origin={
                "exchange": arrival.exchange,
                "routing_key": arrival.routing_key,
                "delivery_tag": arrival.tag,
            },
            handle=(epoch, arrival.tag, arrival.envelope, arrival.consumer),
            open_envelope=open_envelope,
            raw_envelope=arrival.envelope,
            names_trace=names_trace,
            unread=arrival.unread,
        )

    def _look_for_stream(self, arrival: Arrival) -> None:
        """If the broker could not be asked, or the queue was created again, the first message shows it."""
        self._looked_for_stream = True
        if came_from_stream(open_envelope(arrival.envelope).headers):
            raise refuse(self._place, self._connector.queue)

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        ledger, connection, courier = self._ledger, self._connection, self._courier
        final: list[Settlement] = []
        for settlement in work:
            epoch, tag, _, _ = settlement.delivery.handle
            is_open = ledger is not None and epoch == self._epoch and tag in ledger
            if is_open and settlement.verdict.action in MOVED and self._carry(tag, settlement):
                continue
            final.append(settlement)
            if settlement.fate is not Fate.ASIDE:
                known = is_open and not self._is_carried(settlement) and self._note(tag, settlement)
                settlement.fate = self._done(settlement) if known else Fate.STALE
        moved = self._mover.moved() if self._mover is not None else []
        if ledger is None or connection is None or not (work or moved or courier is not None):
            return final
        self._look_for_the_end()
        for tag, settlement in courier.arrived() if courier is not None else ():
            settlement.fate = Fate.DONE if ledger.ack(tag) else Fate.STALE
            final.append(settlement)
        for one in moved:
            self._settle_moved(ledger, one)
            final.append(one.settlement)
        frames = ledger.flush()
        if frames:
            connection.emit(frames)
        if self._windows is not None:
            self._windows.make_up()
        return final

    def _done(self, settlement: Settlement) -> Fate:
        """The fate of a verdict that we carried out without moving anything."""
        is_dead = settlement.verdict.action is Action.DEAD_LETTER
        return Fate.REJECTED if is_dead and not self._letters.are_kept else Fate.DONE

    def _is_carried(self, settlement: Settlement) -> bool:
        """Whether somebody is moving it, so that a second verdict comes too late; LEAVE does not count."""
        tag = settlement.delivery.handle[1]
        return self._is_moving(tag) and settlement.verdict.action is not Action.LEAVE

    def _is_moving(self, tag: int) -> bool:
        courier, mover = self._courier, self._mover
        return (courier is not None and tag in courier) or (mover is not None and tag in mover)

    def _carry(self, tag: int, settlement: Settlement) -> bool:
        """Have chronicle move it, if it is to; whether that began.

        If not, it may have got another verdict, or been put aside.
        """
        courier, session = self._courier, self._session
        envelope = settlement.delivery.handle[2]
        if self._is_moving(tag) or session is None:
            return False
        broker_can = can_be_dead_lettered(envelope, self._connector.queue)
        if settlement.delivery.unread:  # without its body, only the broker can move it
            if not broker_can and settlement.verdict.action is Action.DEAD_LETTER:
                self._put_aside(settlement, f"{X_DEATH}, and {UNREAD}")
            return False
        if courier is not None and courier.takes(settlement):
            if courier.send(tag, envelope, settlement):
                return True
            # Headers that fill a whole frame: no client can send them, but the broker can move them.
            if not broker_can:
                self._put_aside(settlement, f"{X_DEATH}, and {UNSENDABLE}")
            elif self._letters.moves and not self._letters.are_kept:
                self._put_aside(settlement, f"{UNSENDABLE}, and the broker may delete it")
            else:
                settlement.verdict = cannot_move(settlement.verdict, UNSENDABLE)
            return False
        if broker_can or settlement.verdict.action is not Action.DEAD_LETTER:
            return False
        if self._mover is None:
            from chronicle.transports.rabbitmq.mover import Mover  # most runs never need it

            self._mover = Mover(self._connector, session)
        self._mover.move(tag, envelope, settlement)
        return True

    def _settle_moved(self, ledger: TagLedger, one: Moved) -> None:
        if one.failure:
            self._put_aside(one.settlement, f"{X_DEATH}, and {one.failure}")
            return
        one.settlement.verdict = broker_cannot_move(one.settlement.verdict, X_DEATH)
        one.settlement.fate = Fate.DONE if ledger.ack(one.tag) else Fate.STALE

    def _put_aside(self, settlement: Settlement, why: str) -> None:
        """Leave it unacknowledged until the channel closes; its place in the prefetch is made up for."""
        assert self._windows is not None
        settlement.verdict = nobody_can_move(settlement.verdict, why)
        settlement.fate = Fate.ASIDE
        self._windows.put_aside(settlement.delivery.handle[3])

    def _note(self, tag: int, settlement: Settlement) -> bool:
        """Tell the ledger what to do with a tag; False if the tag is not open."""
        ledger, action = self._ledger, settlement.verdict.action
        assert ledger is not None
        match action:
            case Action.ACK | Action.DROP:
                return ledger.ack(tag)
            case Action.REQUEUE | Action.RETRY:
                return ledger.nack(tag, requeue=True)
            case Action.DEAD_LETTER:
                return ledger.nack(tag, requeue=False)
            case Action.LEAVE:  # the broker gets it back when the channel closes
                return tag in ledger
        assert_never(action)

    def is_empty(self) -> bool | None:
        session, channel = self._session, self._channel
        if session is None or channel is None:
            return None
        try:
            # The broker may answer before it sends on what the queue had handed out until then. That comes
            # before its second answer.
            return all(self._ask_depth(session, channel)() == 0 for _ in range(2))
        except CalledOff:
            return None

    def wake(self) -> None:
        session = self._session
        if session is not None:
            session.poller.wake()

    def fileno(self) -> int | None:
        return self._session.poller.fileno() if self._session is not None else None

    # --- ending -------------------------------------------------------------------------------------

    def stop(self, patience: float) -> None:
        self.machine.fire(RabbitEvent.STOP)
        session, windows = self._session, self._windows
        if session is None or windows is None or self.machine.state != Rabbit.SHUTTING_DOWN:
            return  # not connected, or cancelled before
        self._look_for_the_end()
        if self._courier is not None:
            self._courier.hurry()
        # Patience is for syncers: without any, the broker's answer would pass for a lost connection.
        patience = min(max(patience, CLOSE_TIMEOUT), ANSWER_TIMEOUT)
        session.ask(windows.stop, patience, heed=False)
        self.machine.fire(RabbitEvent.CANCEL_OK)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        self._let_go(CLOSE_TIMEOUT if why is Closing.SETTLED else 0.0)
        if why is not Closing.LOST:
            self.machine.fire(RabbitEvent.STOP)
        self.machine.fire(ENDINGS[why])

    def _let_go(self, patience: float) -> None:
        """End this epoch; wait at most `patience` for the broker's close to complete."""
        self._epoch += 1
        self._ledger = None
        self._gauge.end()
        session, self._session = self._session, None
        self._connection = self._channel = self._courier = self._mover = self._windows = None
        if session is not None:
            session.close(patience)

    def _is_consuming(self) -> bool:
        channel = self._channel
        return channel is not None and channel.is_open

    def _look_for_the_end(self) -> None:
        """Raise if this epoch is over."""
        if self._session is not None:
            self._session.look()
        if self._channel is not None and not self._channel.is_open:
            raise ConnectionLost(f"{self._place}: the channel is closed")

    def _cancelled(self, _frame: object) -> None:
        if self._session is not None:
            gone = f"{self._place}: the broker cancelled the consumer; is the queue gone?"
            self._session.ended(ConnectionLost(gone))
        if self.machine.can(RabbitEvent.CANCELLED):
            self.machine.fire(RabbitEvent.CANCELLED)
