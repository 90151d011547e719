"""Values: equal by their fields, fit for sets, and silent about what shall not be shown."""

from __future__ import annotations

from dataclasses import KW_ONLY, field, replace

from chronicle.core.frozen import frozen


@frozen
class Point:
    """A value with all kinds of fields."""

    x: int
    y: int = 0
    secret: str = field(default="", repr=False)
    extras: dict[str, str] = field(default_factory=dict, hash=False)
    seen: int = field(default=0, compare=False)


@frozen
class Other:
    """The same fields, another class."""

    _: KW_ONLY
    x: int
    y: int = 0


def test_equal_by_their_fields() -> None:
    assert Point(1, 2) == Point(1, 2, seen=5)
    assert Point(1, 2) != Point(2, 1)
    assert Point(1) != Point(1, extras={"a": "b"})


def test_another_class_is_another_value() -> None:
    values: list[object] = [Point(1), Other(x=1), (1, 0)]
    assert values[0] != values[1]
    assert values[1] != values[2]


def test_hash_leaves_out_what_has_none() -> None:
    assert {Point(1, extras={"a": "b"}), Point(1, extras={"a": "b"}, seen=1)} == {Point(1, extras={"a": "b"})}


def test_shown_without_secrets() -> None:
    assert repr(Point(1, secret="hidden")) == "Point(x=1, y=0, extras={}, seen=0)"


def test_replaced_not_changed() -> None:
    before = Point(1)
    assert replace(before, y=3) == Point(1, 3)
    assert before == Point(1)


def test_matched_by_position() -> None:
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


def test_no_further_attributes() -> None:
    assert not hasattr(Point(1), "__dict__")


@frozen
class Shy:
    """One that says itself how it is shown."""

    x: int

    def __repr__(self) -> str:
        return "Shy"


def test_what_a_class_says_itself_stays() -> None:
    assert repr(Shy(1)) == "Shy"
    assert Shy(1) == Shy(1)
