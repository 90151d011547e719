"""A routing key tied to what its messages are (R-003-36)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from chronicle.core.decoder import decoder_of
from chronicle.core.pipeline import Schema
from chronicle.errors import InvalidMessage, MessageError
from chronicle.library.values import check_text
from chronicle.telemetry.redaction import name_of

A = TypeVar("A")


class RoutingKey(Generic[A]):
    """Which messages a queue gets, and what they are.

        RoutingKey("order.*", Order)                   # a dataclass, or a TypedDict
        RoutingKey("order.*", Order.model_validate)    # a function of the decoded JSON, such as pydantic's
        RoutingKey("order.*", bytes)                   # the body as it came

    A body that does not decode is bad input and never reaches the program.
    """

    @overload
    def __init__(self, key: str, decodes: type[A]) -> None: ...

    @overload
    def __init__(self, key: str, decodes: Callable[[Any], A]) -> None: ...

    def __init__(self, key: str, decodes: Any) -> None:
        self.key = check_text("the key of a RoutingKey", key)
        self.name = str(getattr(decodes, "__qualname__", type(decodes).__name__))
        self.schema = Schema.RAW if decodes is bytes else Schema.JSON
        self._decode = decoder_of(decodes) if decodes is not bytes else _as_it_is

    def decode(self, message: Any) -> A:
        """The value of a message; raises InvalidMessage and nothing else."""
        try:
            return self._decode(message)  # type: ignore[no-any-return]
        except MessageError as error:
            raise InvalidMessage(f"the body is no {self.name}: {error}") from None
        except Exception as error:  # its text may quote the body
            raise InvalidMessage(f"the body is no {self.name}: {name_of(type(error))}") from None

    def __repr__(self) -> str:
        return f"RoutingKey({self.key!r}, {self.name})"


def _as_it_is(body: Any) -> Any:
    return body
