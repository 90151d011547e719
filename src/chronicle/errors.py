"""What can go wrong, sorted by whose fault it is.

    ChronicleError
    ├── OperatorError          the operator must change something                   exit 2
    │   ├── SettingError           an option, a variable, a URL, a file
    │   ├── SyncerError            the syncer cannot be loaded or does not start
    │   ├── KeyStoreError          the key store cannot be read or trusted
    │   └── BrokerRefused          the broker answered and refused
    │       ├── NoSuchQueue            because the queue does not exist
    │       └── NotAllowed             because this user may not
    ├── BrokerError            the broker or the connection to it                     retried
    │   ├── BrokerUnreachable      no connection could be made                        exit 3
    │   └── ConnectionLost         there was a connection
    │       └── ProtocolFault          what came over it could not be read
    ├── ClientFailed           the transport cannot go on; no reconnect would help    exit 3
    │   └── CannotKeep             a message that nobody takes                        exit 1
    ├── MessageError           this one message                                      a verdict
    │   ├── InvalidMessage         not JSON, too large, unknown schema
    │   └── CannotDecrypt          its personal data cannot be opened
    │       └── UnknownSigner      …because a key sealed it that is not pinned
    ├── SettleError            a program settles a message that it cannot settle
    │   ├── AlreadySettled         …because it has settled it
    │   └── MessageGone            …because the broker has it back
    ├── SubscriptionFailed     a subscription ended before its time
    └── Ask                    a syncer asks for a verdict by raising                 a verdict
        ├── Retry
        ├── DeadLetter
        └── Drop

Rule: the text of an error names settings, ids and sizes; never a secret, never a message's content.
"""

from __future__ import annotations


class ChronicleError(Exception):
    """Anything chronicle raises on purpose; `remedy` says what to do about it, if that is known."""

    remedy = ""
    exit_code = 1  # of a command that it ends (X6)


class OperatorError(ChronicleError):
    """Something the operator must change."""

    exit_code = 2

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class SettingError(OperatorError):
    """An option, a variable, a URL or a file is wrong."""


class SyncerError(OperatorError):
    """The syncer cannot be loaded; `trace` is the traceback of the user's module, if it has one."""

    def __init__(self, problem: str, remedy: str = "", trace: str = "") -> None:
        super().__init__(problem, remedy)
        self.trace = trace


class KeyStoreError(OperatorError):
    """The key store cannot be read or must not be trusted."""


class BrokerRefused(OperatorError):
    """The broker answered and refused: no such queue, no access, different arguments."""


class NoSuchQueue(BrokerRefused):
    """The queue does not exist."""


class NotAllowed(BrokerRefused):
    """The user lacks a permission."""


class BrokerError(ChronicleError):
    """The broker, or the connection to it, failed."""

    exit_code = 3


class BrokerUnreachable(BrokerError):
    """No connection could be made."""

    def __init__(
        self, problem: str, remedy: str = "check that it is running, and the host and port in the URL"
    ) -> None:
        super().__init__(problem)
        self.remedy = remedy


class ConnectionLost(BrokerError):
    """There was a connection, and what was held on it goes back to the broker."""


class ProtocolFault(ConnectionLost):
    """What came over the connection could not be read."""


class ClientFailed(ChronicleError):
    """The transport cannot go on, and no reconnect would help: the client has failed for good."""

    exit_code = 3

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy


class CannotKeep(ClientFailed):
    """Nobody takes a message that must not be lost, such as a dead letter that is too large everywhere."""

    exit_code = 1


class MessageError(ChronicleError):
    """This one message cannot be handled."""


class InvalidMessage(MessageError):
    """The body is not what the schema option requires."""


class CannotDecrypt(MessageError):
    """The message's personal data cannot be opened."""


class UnknownSigner(CannotDecrypt):
    """It was sealed with a key that is not one of the pinned ones."""


class SettleError(ChronicleError):
    """A message cannot be settled."""


class AlreadySettled(SettleError):
    """It was settled before: one `ack`, `nack` or `reject` is all there is."""


class MessageGone(SettleError):
    """Its connection is gone, or its subscription was left: it goes to whoever asks the broker next."""


class SubscriptionFailed(ChronicleError):
    """There are no more messages, and not because anybody wanted it."""


LONGEST_DELAY = 10 * 365 * 86_400.0  # seconds: more is a mistake, and some brokers could not store it


class Ask(ChronicleError):
    """A verdict a syncer asks for by raising."""


class Retry(Ask):
    """Try this message again, after this many seconds; without a number the delay grows by itself."""

    def __init__(self, why: str = "the syncer asked for another try", after: float | None = None) -> None:
        super().__init__(why)
        if after is not None and not 0 <= after <= LONGEST_DELAY:
            raise ValueError("Retry(after=…) takes seconds from now, zero or more, and at most ten years")
        self.after = after


class DeadLetter(Ask):
    """Dead-letter this message, with the reason, without another try."""

    def __init__(self, why: str = "the syncer dead-lettered it") -> None:
        super().__init__(why)


class Drop(Ask):
    """Acknowledge this message without having handled it; the log names it."""

    def __init__(self, why: str = "the syncer dropped it") -> None:
        super().__init__(why)
