"""Where the URL comes from: chronicle's variables, then proca's (proca.md §6, Z3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import SettingError
from chronicle.transports.rabbitmq.address import address_of
from chronicle_cli.broker_url import has_password, resolve_url, with_password


@pytest.mark.parametrize(
    ("given", "environ", "url"),
    [
        (None, {}, "local:chronicle.db"),
        ("amqp://h/v", {"PROCA_URL": "amqp://p/"}, "amqp://h/v"),
        (None, {"PROCA_URL": "amqp://p/"}, "amqp://p/"),
        (None, {"PROCA_USERNAME": "u", "PROCA_PASSWORD": "p"}, "amqps://u:p@api.proca.app/proca_live"),
        (
            None,
            {"PROCA_URL": "amqps://h/v", "PROCA_USERNAME": "a@b", "PROCA_PASSWORD": "p/#?"},
            "amqps://a%40b:p%2F%23%3F@h/v",
        ),
        (
            None,
            {"PROCA_URL": "amqp://x:y@h/v", "PROCA_USERNAME": "u", "PROCA_PASSWORD": "p"},
            "amqp://x:y@h/v",
        ),
        (None, {"PROCA_URL": "amqp://u@h/v", "PROCA_PASSWORD": "p:/"}, "amqp://u:p%3A%2F@h/v"),
        (
            None,
            {"PROCA_URL": "amqp://a%40b@h/v", "PROCA_USERNAME": "a@b", "PROCA_PASSWORD": "p"},
            "amqp://a%40b:p@h/v",
        ),
        (None, {"PROCA_URL": "amqp://u@h/v", "CHRONICLE_PASSWORD": "c"}, "amqp://u:c@h/v"),
        (
            None,
            {"PROCA_URL": "amqp://u@h/v", "PROCA_PASSWORD": "p", "CHRONICLE_PASSWORD": "c"},
            "amqp://u:p@h/v",
        ),
        (None, {"PROCA_URL": "amqp://u:own@h/v", "PROCA_PASSWORD": "p"}, "amqp://u:own@h/v"),
        (None, {"PROCA_URL": "local:x.db", "PROCA_USERNAME": "u", "PROCA_PASSWORD": "p"}, "local:x.db"),
        (
            None,
            {"PROCA_URL": "amqp://[::1/", "PROCA_USERNAME": "u", "PROCA_PASSWORD": "p"},
            "amqp://u:p@[::1/",
        ),
        ("amqp://u@h/v", {"CHRONICLE_PASSWORD": "s:e@c"}, "amqp://u:s%3Ae%40c@h/v"),
        ("amqp://u:own@h/v", {"CHRONICLE_PASSWORD": "other"}, "amqp://u:own@h/v"),
        ("amqp://h/v", {"CHRONICLE_PASSWORD": "other"}, "amqp://h/v"),
        ("local:x.db", {"CHRONICLE_PASSWORD": "other"}, "local:x.db"),
    ],
)
def test_which_url(given: str | None, environ: Mapping[str, str], url: str) -> None:
    assert resolve_url(given, environ) == url


def test_files(tmp_path: Path) -> None:
    """Z3: `*_FILE`, as container secrets come; chronicle's file wins over proca's variables."""
    (tmp_path / "url").write_text("amqp://u@h/v\n")
    (tmp_path / "password").write_text("p w\r\n")
    environ = {
        "CHRONICLE_URL_FILE": str(tmp_path / "url"),
        "CHRONICLE_PASSWORD_FILE": str(tmp_path / "password"),
        "PROCA_URL": "amqp://p/",
    }
    assert resolve_url(None, environ) == "amqp://u:p%20w@h/v"
    assert resolve_url("local:x", environ) == "local:x"


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff\xfe", b"x" * 70000])
def test_a_secret_file_holds_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(SettingError, match="CHRONICLE_PASSWORD_FILE"):
        resolve_url("amqp://u@h/", {"CHRONICLE_PASSWORD_FILE": str(path)})


def test_a_missing_secret_file_is_named_by_its_variable(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="CHRONICLE_URL_FILE names cannot be read"):
        resolve_url(None, {"CHRONICLE_URL_FILE": str(tmp_path / "none")})


def test_half_a_login_is_not_the_embedded_queue() -> None:
    """A forgotten password must not silently end in another queue."""
    with pytest.raises(SettingError, match="PROCA_USERNAME without PROCA_PASSWORD"):
        resolve_url(None, {"PROCA_USERNAME": "u"})


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"PROCA_URL": "amqp://h/v", "PROCA_PASSWORD": "p"}, "PROCA_PASSWORD without a user name"),
        (
            {"PROCA_URL": "amqp://x@h/v", "PROCA_USERNAME": "u", "PROCA_PASSWORD": "p"},
            "PROCA_URL and PROCA_USERNAME name two users",
        ),
    ],
)
def test_a_password_that_belongs_to_nobody_is_refused(environ: Mapping[str, str], problem: str) -> None:
    """A login that is left out would be tried as guest, and refused for a reason nobody sees."""
    with pytest.raises(SettingError, match=problem):
        resolve_url(None, environ)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_password_survives(password: str) -> None:
    """Whatever is in it, the broker gets what the variable said."""
    url = with_password("amqps://u@h:5671/v?heartbeat=5", password)
    assert has_password(url)
    assert unquote(urlsplit(url).password or "") == password
    address = address_of(url)
    assert (address.user, address.password, address.host, address.heartbeat) == ("u", password, "h", 5)
    assert "password='" not in repr(address)
