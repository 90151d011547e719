"""Where the secret of an encrypted file comes from: a variable, a file, or a prompt at the terminal.

Rule 1 (Z3): never from the command line, which every user of the machine can read.
Rule 2 (Z4): whatever is read here is hidden in everything that is printed afterwards.
Rule 3: it is prompted for only when an encrypted file is read or written, twice for writing, and once for
        all files of a command.
Rule 4: where there is a secret, or CHRONICLE_ENCRYPT says so, files are written encrypted and expected to be
        encrypted: a plain one in the place of one that was is refused.
Rule 5: a new file is not encrypted with a passphrase that is quickly guessed.
"""

from __future__ import annotations

import getpass
import os
import sys
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from typing import Final

import click

from chronicle.core.encryption import (
    KEY_BYTES,
    Secret,
    SecretKind,
    decrypt_whole,
    encrypt_whole,
    is_encrypted,
)
from chronicle.core.json_tags import from_base64
from chronicle.errors import KeyStoreError, SettingError
from chronicle.telemetry.redaction import KNOWN
from chronicle_cli.broker_url import PASSPHRASE, line_in_file_of

PASSPHRASE_FILE: Final = "CHRONICLE_PASSPHRASE_FILE"
ENCRYPT_KEY_FILE: Final = "CHRONICLE_ENCRYPT_KEY_FILE"
VARIABLES: Final = (PASSPHRASE, PASSPHRASE_FILE, ENCRYPT_KEY_FILE)
ENCRYPT: Final = "CHRONICLE_ENCRYPT"
SHORTEST: Final = 12  # characters
REMEDY: Final = f"set {PASSPHRASE_FILE} to a file that holds it, or {PASSPHRASE}, or run this in a terminal"


class PassphraseSource:
    """The secrets of one command."""

    def __init__(
        self,
        environ: Mapping[str, str],
        ask: Callable[[str], str] | None = None,
        *,
        encrypt: bool | None = None,
    ) -> None:
        """`encrypt` is what an option says; else CHRONICLE_ENCRYPT counts, then whether there is a secret."""
        self._environ = environ
        self._ask = ask or ask_at_terminal
        self._answer: Secret | None = None
        said = _flag(environ) if encrypt is None else encrypt
        self.encrypts = any(environ.get(name) for name in VARIABLES) if said is None else said

    def to_decrypt(self, kind: SecretKind, name: str) -> Secret:
        """The secret to decrypt this file with."""
        if kind is SecretKind.KEY:
            key = self._key()
            if key is None:
                raise SettingError(f"{name} is encrypted with a key", f"name its file in {ENCRYPT_KEY_FILE}")
            return key
        given = self._given() or self._answer
        if given is None:
            given = self._answer = passphrase(self._ask(f"Passphrase for {name}: "))
        return given

    def to_encrypt(self) -> Secret:
        """The secret to encrypt files with: the key if there is one, else the passphrase."""
        given = self._key() or self._given() or self._answer
        if given is None:
            given = long_enough(passphrase(self._ask("New passphrase: ")))
            if passphrase(self._ask("Repeat the passphrase: ")) != given:
                raise SettingError("the two passphrases differ", "try again")
            self._answer = given
        return long_enough(given)

    @property
    def for_writing(self) -> Callable[[], Secret] | None:
        """Where the secret for a file to be written comes from; None if it is to be plain."""
        return self.to_encrypt if self.encrypts else None

    def unlock(self, content: bytes, name: str | None) -> bytes:
        """A key store's content, decrypted; a plain file is refused where it is expected to be locked."""
        if is_encrypted(content):
            return decrypt_whole(content, self.to_decrypt, name or "the key store")
        if self.encrypts and name is not None:
            raise KeyStoreError(
                f"{name} is not locked, and it is expected to be: a passphrase or key is set",
                f"lock it with `chronicle keys lock`; if it is meant to be plain, set {ENCRYPT}=false",
            )
        return content

    def lock(self, content: bytes) -> bytes:
        """A key store's content, locked."""
        return encrypt_whole(content, self.to_encrypt(), os.urandom)

    def _given(self) -> Secret | None:
        text = self._environ.get(PASSPHRASE) or line_in_file_of(PASSPHRASE_FILE, self._environ)
        return passphrase(text) if text else None

    def _key(self) -> Secret | None:
        text = line_in_file_of(ENCRYPT_KEY_FILE, self._environ)
        if text is None:
            return None
        try:
            raw = from_base64(text)
        except (NotBase64, ValueError):
            raw = b""
        if len(raw) != KEY_BYTES:
            raise SettingError(
                f"the file that {ENCRYPT_KEY_FILE} names is not {KEY_BYTES} bytes in base64",
                f"make one with: (umask 077; openssl rand -base64 {KEY_BYTES} > encryption.key)",
            )
        KNOWN.add(text, raw)
        return Secret(SecretKind.KEY, raw)


def passphrase(text: str) -> Secret:
    """The secret for this passphrase."""
    if not text:
        raise SettingError("the passphrase is empty", REMEDY)
    content = text.encode("utf-8", "surrogateescape")
    KNOWN.add(text, content)
    return Secret(SecretKind.PASSPHRASE, content)


def long_enough(secret: Secret) -> Secret:
    """The secret, if it may encrypt something: whoever has the file can try passphrases day and night."""
    if secret.kind is SecretKind.PASSPHRASE and len(secret.content.decode(errors="replace")) < SHORTEST:
        raise SettingError(
            f"the passphrase is shorter than {SHORTEST} characters",
            "take a longer one, such as four random words",
        )
    return secret


def _flag(environ: Mapping[str, str]) -> bool | None:
    """What CHRONICLE_ENCRYPT says; None if it is not set."""
    text = environ.get(ENCRYPT, "").strip()
    if not text:
        return None
    try:
        return bool(click.BOOL.convert(text, None, None))
    except click.BadParameter:
        raise SettingError(f"{ENCRYPT} is neither true nor false", "set it to one of them") from None


def ask_at_terminal(question: str) -> str:
    """What the user types, without showing it."""
    # Standard input may be messages, and without a terminal the prompt would wait forever.
    if not sys.stderr.isatty():
        raise SettingError("a passphrase is needed, and there is no terminal to prompt for it", REMEDY)
    try:
        return getpass.getpass(question)
    except EOFError:
        raise SettingError("a passphrase is needed", REMEDY) from None
