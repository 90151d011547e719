"""From a delivery to the message a syncer gets: retry guard, decode, schema, normalise, decrypt.

Rule 1: it raises MessageError and nothing else, whatever the bytes are; there are no side effects (R-004-27).
Rule 2: the retry guard looks at headers only, and only when there is a limit; the body is not touched before.
Rule 3: the delivery stays as it came. Only the message, parsed here, contains opened personal data (D-21).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from chronicle.core.body import MAX_BODY, parse, too_large
from chronicle.core.delivery import Delivery, completed_cycles
from chronicle.core.frozen import frozen
from chronicle.core.names import action_id_of
from chronicle.core.outcome import Exhausted
from chronicle.errors import CannotDecrypt, InvalidMessage
from chronicle.proca.normalise import copy_ids, merge_contact
from chronicle.proca.schema import EVENT, schema_of

if TYPE_CHECKING:
    from chronicle.proca.keystore import KeyStore


Unsealing: TypeAlias = tuple[tuple[str, ...], bool]  # warnings, and whether sealed data was opened
PLAIN: Final[Unsealing] = ((), False)
WITHOUT_KEYS: Final[Unsealing] = (("personal data left sealed: there is no key store",), False)


class Schema(StrEnum):
    """What a body must be."""

    PROCA = "proca"
    JSON = "json"
    RAW = "raw"


@frozen
class Prepared:
    """A message ready for the syncer; `notes` are warnings for the log, without content."""

    message: Any
    action_id: int | None = None
    notes: tuple[str, ...] = ()
    opened: bool = False  # its personal data was sealed and could be read


@frozen
class Pipeline:
    """The operator's choices about messages."""

    schema: Schema = Schema.PROCA
    keys: KeyStore | None = None
    require_decryption: bool = False
    normalize_events: bool = False
    max_body: int = MAX_BODY
    max_retries: int | None = None

    def exhausted(self, delivery: Delivery) -> Exhausted | None:
        """The retry guard: has this message gone round more often than allowed (R-004-12 to 14)?"""
        if self.max_retries is None:
            return None
        retries = completed_cycles(delivery.headers, delivery.queue)
        return Exhausted(retries, self.max_retries) if retries > self.max_retries else None

    def prepare(self, delivery: Delivery) -> Prepared:
        """The message for the syncer; raises MessageError."""
        if delivery.unread:
            raise InvalidMessage(delivery.unread)
        body = delivery.body
        if self.schema is Schema.RAW:
            if problem := too_large(len(body), self.max_body):
                raise InvalidMessage(problem)
            return Prepared(body)
        message = parse(body, self.max_body)
        if not isinstance(message, dict):
            raise InvalidMessage("the body is not a JSON object")
        notes, opened = self._proca(message) if self.schema is Schema.PROCA else PLAIN
        return Prepared(message, action_id_of(message), notes, opened)

    def _proca(self, message: dict[str, Any]) -> Unsealing:
        """Check, normalise and open a message of a proca server in place."""
        holder: Any = message
        if schema_of(message) == EVENT:
            if not self.normalize_events:
                return PLAIN
            holder = message.get("supporter")
        copy_ids(message)
        if holder is None:
            return PLAIN
        if not isinstance(holder, dict):
            raise InvalidMessage("supporter is not an object")
        info = holder.get("personalInfo")
        return PLAIN if info is None else self._open(holder, info)

    def _open(self, holder: dict[str, Any], info: Any) -> Unsealing:
        if self.keys is None:
            if self.require_decryption:
                raise CannotDecrypt("the message's personal data is sealed and there is no key store")
            return WITHOUT_KEYS
        # Imported with the first sealed message: without a key store there is no need to load NaCl.
        from chronicle.proca.sealed import open_personal_info

        opened = open_personal_info(info, self.keys)
        if opened is not None:
            merge_contact(holder, opened)
            return (), True
        # Eight characters of a verified public key: no secret, and nothing forged.
        problem = f"key {info['encryptKey']['public'][:8]}… is not in the key store"
        if self.require_decryption:
            raise CannotDecrypt(f"the message's personal data cannot be opened: {problem}")
        return (f"personal data left sealed: {problem}",), False
