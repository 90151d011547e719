"""The secrets a process has read (Z4): found in every text, however they are written there."""

from __future__ import annotations

import json
import os
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.encryption import KEY_BYTES
from chronicle.proca.keystore import KeyStore, decode, encode, new_pair
from chronicle.telemetry.redaction import KNOWN, mask, one_line, redact, secrets_in
from chronicle.telemetry.redaction.known import passwords_in
from chronicle_cli.passphrase import ENCRYPT_KEY_FILE, PASSPHRASE_FILE, PassphraseSource
from support import samples

PASSWORD: Final = "s3cr3t-p@ss/wörd"


def hides(*texts: str) -> bool:
    """Whether nothing of these is left; the word around them is."""
    return all(text not in redact(f"it said {text}, twice: ({text})") for text in texts)


@pytest.mark.parametrize("user", ["a", "me", "you", "someone", "proca-live"])
def test_z4_a_password_is_hidden_inside_the_base64_of_user_and_password(user: str) -> None:
    KNOWN.add(PASSWORD)
    pair = f"{user}:{PASSWORD}".encode()
    for encoded in (b64encode(pair).decode(), urlsafe_b64encode(pair).decode().rstrip("=")):
        out = redact(f"header {encoded} refused")
        # What is left is at most the user, the colon and a character on the border.
        assert len(out) < len("header  refused") + len(encoded) / 2 + 8
        assert b64encode(PASSWORD.encode()).decode()[4:12] not in out
    assert hides(PASSWORD.encode().hex(), PASSWORD.encode().hex().upper(), repr(PASSWORD.encode())[2:-1])


def test_z4_a_passphrase_from_a_file_is_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_text("correct-horse-battery\n")
    assert not hides("correct-horse-battery")
    PassphraseSource({PASSPHRASE_FILE: str(file)}).to_encrypt()
    assert hides("correct-horse-battery", "CORRECT-HORSE-BATTERY", repr(b"correct-horse-battery"))


def test_z4_a_passphrase_typed_at_the_terminal_is_a_secret() -> None:
    PassphraseSource({}, lambda _question: "typed-by-hand").to_encrypt()
    assert hides("typed-by-hand")


def test_z4_the_key_of_encrypted_files_is_a_secret(tmp_path: Path) -> None:
    raw = bytes(range(100, 100 + KEY_BYTES))
    file = tmp_path / "key"
    file.write_bytes(b64encode(raw))
    PassphraseSource({ENCRYPT_KEY_FILE: str(file)}).to_encrypt()
    assert hides(b64encode(raw).decode(), raw.hex(), repr(raw)[2:-1])


def test_z4_the_private_keys_of_a_store_are_secrets_and_its_public_ones_are_not() -> None:
    public, private = new_pair()
    store = KeyStore.load(json.dumps({public: {"private": private}}))
    KNOWN.add(*store.privates())
    out = redact(f"{public} {private} {decode(private).hex()}")
    assert out.startswith(public)
    assert private[:42] not in out
    assert decode(private).hex() not in out
    assert encode(decode(private)) == private


class TestEnvironment:
    def test_z4_what_sounds_like_a_secret_is_one(self) -> None:
        environ = {
            "CRM_TOKEN": "tok-1234",
            "DB_PASSWORD": "pw12",
            "SLACK_URL": "https://hooks.test/T0/B0/abcdef",
            "DATABASE_URL": "postgres://me:hunter22@db/crm",
            "CHRONICLE_URL": "amqps://me:hunter33@broker.test/live",
            "AWS_ACCESS_KEY_ID": "AKIA12345678",
        }
        KNOWN.add(*secrets_in(environ))
        assert hides(
            "tok-1234", "pw12", "https://hooks.test/T0/B0/abcdef", "hunter22", "hunter33", "AKIA12345678"
        )
        assert one_line("no queue at broker.test/live") == "no queue at broker.test/live"

    def test_names_are_no_secrets(self, tmp_path: Path) -> None:
        environ = {
            "CHRONICLE_ROUTING_KEY": "register.action",
            "CHRONICLE_KEYS": "no-such-keys.json",
            "SSH_AUTH_SOCK": str(tmp_path),
            "USE_AUTH": "true",
            "CHRONICLE_QUEUE": "cus.12.deliver",
        }
        assert list(secrets_in(environ)) == []

    def test_z4_the_files_they_name_hold_secrets_and_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        file, pipe = tmp_path / "token", tmp_path / "pipe"
        file.write_text("from-a-file\n")
        os.mkfifo(pipe)
        environ = {
            "CRM_TOKEN_FILE": str(file),
            "CRM_PASSWORD_FILE": str(pipe),
            "OTHER_SECRET_FILE": "/nowhere",
        }
        assert list(secrets_in(environ)) == ["from-a-file"]

    def test_z4_keys_given_as_text_are_secrets_line_by_line_too(self) -> None:
        pem = "-----BEGIN X-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END X-----"
        KNOWN.add(*secrets_in({"TLS_PRIVATE_KEY": pem, "CHRONICLE_KEYS": samples.body("keys.json").decode()}))
        assert hides(pem, "MIIEvQIBADANBg", "kqhkiG9w0BAQEF")
        entries = samples.message("keys.json")
        assert hides(*(entry["private"] for entry in entries.values()))
        assert not hides(*entries)


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("amqp://me:/s3cretpw@broker.example", "/s3cretpw"),
        ("amqp://me:12/s3cretpw@broker.example/vh", "12/s3cretpw"),
        ("amqp://me:what?s3cretpw@broker.example", "what?s3cretpw"),
        ("redis+sentinel://me:/s3cretpw@h1/0", "/s3cretpw"),
    ],
)
def test_z4_a_password_that_ends_the_hosts_too_early_is_a_secret(url: str, password: str) -> None:
    assert password in set(passwords_in(url))


def test_z4_a_secret_is_hidden_before_a_text_is_shortened() -> None:
    """The half of a secret before the ellipsis would not be recognised afterwards."""
    KNOWN.add("correct-horse-battery")
    for before in range(270, 300):
        assert "correct" not in mask("x" * before + " correct-horse-battery", {})
        assert "correct" not in one_line("x" * before + " correct-horse-battery", 300)


def test_the_list_of_secrets_shows_none() -> None:
    KNOWN.add("correct-horse-battery")
    assert repr(KNOWN) == "<Known>"
