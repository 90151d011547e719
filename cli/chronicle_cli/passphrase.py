"""Where the secret of an encrypted file comes from: a variable, a file, or a prompt at the terminal.

Rule 1 (Z3): never from the command line, which every user of the machine can read.
Rule 2 (Z4): whatever is read here is hidden in everything that is printed afterwards.
Rule 3: it is prompted for only when an encrypted file is read or written, twice for writing, and once for
        all files of a command.
"""

from __future__ import annotations

import getpass
import os
import sys
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from typing import Final

from chronicle.core.encryption import (
    KEY_BYTES,
    Secret,
    SecretKind,
    decrypt_whole,
    encrypt_whole,
    is_encrypted,
)
from chronicle.core.json_tags import from_base64
from chronicle.errors import SettingError
from chronicle.telemetry.redaction import KNOWN
from chronicle_cli.broker_url import PASSPHRASE, line_in_file_of

PASSPHRASE_FILE: Final = "CHRONICLE_PASSPHRASE_FILE"
ENCRYPT_KEY_FILE: Final = "CHRONICLE_ENCRYPT_KEY_FILE"
VARIABLES: Final = (PASSPHRASE, PASSPHRASE_FILE, ENCRYPT_KEY_FILE)
REMEDY: Final = f"set {PASSPHRASE_FILE} to a file that holds it, or {PASSPHRASE}, or run this in a terminal"


class PassphraseSource:
    """The secrets of one command."""

    def __init__(self, environ: Mapping[str, str], ask: Callable[[str], str] | None = None) -> None:
        self._environ = environ
        self._ask = ask or ask_at_terminal
        self._answer: Secret | None = None

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
        """The secret to encrypt new files with: the key if there is one, else the passphrase."""
        given = self._key() or self._given() or self._answer
        if given is None:
            given = passphrase(self._ask("New passphrase: "))
            if passphrase(self._ask("Repeat the passphrase: ")) != given:
                raise SettingError("the two passphrases differ", "try again")
            self._answer = given
        return given

    def unlock(self, content: bytes, name: str) -> bytes:
        """A key store's content, locked or not."""
        return decrypt_whole(content, self.to_decrypt, name) if is_encrypted(content) else content

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


def ask_at_terminal(question: str) -> str:
    """What the user types, without showing it."""
    # Standard input may be messages, and without a terminal the prompt would wait forever.
    if not sys.stderr.isatty():
        raise SettingError("a passphrase is needed, and there is no terminal to prompt for it", REMEDY)
    try:
        return getpass.getpass(question)
    except EOFError:
        raise SettingError("a passphrase is needed", REMEDY) from None
