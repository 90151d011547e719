"""Which messages are handled one after the other: what `--order` means (D-23).

Rule 1: a lane is any value that can be compared. Messages of one lane are handled in their order; None is no
        lane, and a message without one waits for nobody.
Rule 2: finding the lane never fails. A body that is not JSON or too large to look into, and one without the
        field, have no lane.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Final, TypeAlias

from chronicle.core.body import glance
from chronicle.core.delivery import Delivery
from chronicle.core.frozen import frozen

LaneOf: TypeAlias = Callable[[Delivery], Hashable | None]


class OrderKind(StrEnum):
    """By what messages are told apart."""

    NONE = "none"
    KEY = "key"  # the broker's own
    PARTITION = "partition"  # the broker's own
    FIELD = "field"  # of the body


EXAMPLE: Final = "field:contact.contactRef"
FIELD_FORM: Final = "field:PATH"
ORDER_FORMS: Final = tuple(FIELD_FORM if kind is OrderKind.FIELD else kind.value for kind in OrderKind)


@frozen
class Order:
    """What is handled one after the other; the path is that of a field."""

    kind: OrderKind = OrderKind.NONE
    path: tuple[str, ...] = ()

    def lane_by_field(self, delivery: Delivery) -> Hashable | None:
        """The value of the field in the body: a text, a number, true or false."""
        value = glance(delivery.body)
        for name in self.path:
            if not isinstance(value, dict):
                return None
            value = value.get(name)
        return value if isinstance(value, str | int | float) else None


def parse_order(text: str) -> Order:
    """What `--order` says. Raises ValueError with the valid forms."""
    word, colon, rest = text.partition(":")
    path = tuple(rest.split("."))
    if word == OrderKind.FIELD and all(path):
        return Order(OrderKind.FIELD, path)
    if colon or word == OrderKind.FIELD or word not in list(OrderKind):
        raise ValueError(f"one of {', '.join(ORDER_FORMS)}, such as {EXAMPLE}")
    return Order(OrderKind(word))
