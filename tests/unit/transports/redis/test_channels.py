"""The names of channels in a queue's name, and where a message came from."""

from __future__ import annotations

import pytest

from chronicle.errors import SettingError
from chronicle.transports.redis.subscription import channels_in, is_pattern, origin_of


def test_several_are_separated_by_commas_and_each_is_heard_once() -> None:
    assert channels_in("news, orders.* ,news") == ("news", "orders.*")


@pytest.mark.parametrize("text", ["", "a,,b", "a,", " , "])
def test_an_empty_name_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        channels_in(text)


def test_which_names_are_patterns() -> None:
    assert [name for name in ("a", "a*", "a?", "a[bc]", "a]", "a\\b") if is_pattern(name)] == [
        "a*",
        "a?",
        "a[bc]",
    ]


def test_where_a_message_came_from() -> None:
    assert origin_of([b"message", b"news", b"body"]) == {"channel": "news"}
    assert origin_of([b"pmessage", b"n*", b"n\xff", b"body"]) == {"channel": "n\\xff", "pattern": "n*"}
