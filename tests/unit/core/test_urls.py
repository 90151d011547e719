"""URLs are cut as they are written, whatever the Python version thinks of their hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.urls import Url, join_login, split_url


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("amqp://me:p%40w@box:5672/vh", Url("amqp", "me:p%40w", "box:5672", "/vh", "", "")),
        ("kafka://me@h1:9093,h2,[::1]:1", Url("kafka", "me", "h1:9093,h2,[::1]:1", "", "", "")),
        ("redis+sentinel://s1,[::1]/orders/2", Url("redis+sentinel", "", "s1,[::1]", "/orders/2", "", "")),
        ("AMQPS://h?heartbeat=5#x", Url("amqps", "", "h", "", "heartbeat=5", "x")),
        ("local:./box.db", Url("local", "", "", "./box.db", "", "")),
        ("//host/x:y", Url("", "", "host", "/x:y", "", "")),
        ("kafka://a@b@[half", Url("kafka", "a@b", "[half", "", "", "")),
        (" amqp://u:p\n@h\t/ ", Url("amqp", "u:p", "h", "/", "", "")),
        ("", Url("", "", "", "", "", "")),
    ],
)
def test_parts(url: str, parts: Url) -> None:
    assert split_url(url) == parts


@pytest.mark.parametrize(
    ("url", "joined"),
    [
        ("kafka://h1,[::1]", "kafka://new:x@h1,[::1]"),
        ("kafka://old@h1,[::1]/?a#b", "kafka://new:x@h1,[::1]/?a#b"),
        ("amqp://old:pw@box/old:pw@", "amqp://new:x@box/old:pw@"),
    ],
)
def test_a_login_is_put_in(url: str, joined: str) -> None:
    assert join_login(url, "new:x") == joined


@given(st.text())
def test_nothing_is_refused(text: str) -> None:
    split_url(text)
    split_url(f"kafka://{text}")
