"""Where the secret of a sealed file comes from: a variable, a file, or a person at a terminal.

Rule 1 (Z3): never from the command line, which everybody on the machine can read.
Rule 2: it is asked for only when something sealed is read or written, twice when it is for writing, and once
        for all files of a command.
"""

from __future__ import annotations

import getpass
import os
import sys
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from typing import Final

from chronicle.core.json_tags import from_base64
from chronicle.core.sealing import KEY_BYTES, Means, Secret, is_sealed, open_whole, seal_whole
from chronicle.errors import SettingError
from chronicle_cli.broker_url import PASSPHRASE, line_in_file_of

PASSPHRASE_FILE: Final = "CHRONICLE_PASSPHRASE_FILE"
SEAL_KEY_FILE: Final = "CHRONICLE_SEAL_KEY_FILE"
VARIABLES: Final = (PASSPHRASE, PASSPHRASE_FILE, SEAL_KEY_FILE)
REMEDY: Final = f"set {PASSPHRASE_FILE} to a file that holds it, or {PASSPHRASE}, or run it at a terminal"


class PassphraseSource:
    """The secrets of one command."""

    def __init__(self, environ: Mapping[str, str], ask: Callable[[str], str] | None = None) -> None:
        self._environ = environ
        self._ask = ask or ask_at_terminal
        self._answer: Secret | None = None

    def to_open(self, means: Means, name: str) -> Secret:
        """What should open this file."""
        if means is Means.KEY:
            key = self._key()
            if key is None:
                raise SettingError(f"{name} is sealed with a key", f"name its file in {SEAL_KEY_FILE}")
            return key
        given = self._given() or self._answer
        if given is None:
            given = self._answer = passphrase(self._ask(f"Passphrase of {name}: "))
        return given

    def to_seal(self) -> Secret:
        """What new files are sealed with: the key if there is one, else the passphrase."""
        given = self._key() or self._given() or self._answer
        if given is None:
            given = passphrase(self._ask("New passphrase: "))
            if passphrase(self._ask("The same again: ")) != given:
                raise SettingError("the two passphrases are not the same", "try again")
            self._answer = given
        return given

    def unlock(self, content: bytes, name: str) -> bytes:
        """A key store's content, locked or not."""
        return open_whole(content, self.to_open, name) if is_sealed(content) else content

    def lock(self, content: bytes) -> bytes:
        """A key store's content, locked."""
        return seal_whole(content, self.to_seal(), os.urandom)

    def _given(self) -> Secret | None:
        text = self._environ.get(PASSPHRASE) or line_in_file_of(PASSPHRASE_FILE, self._environ)
        return passphrase(text) if text else None

    def _key(self) -> Secret | None:
        text = line_in_file_of(SEAL_KEY_FILE, self._environ)
        if text is None:
            return None
        try:
            raw = from_base64(text)
        except (NotBase64, ValueError):
            raw = b""
        if len(raw) != KEY_BYTES:
            raise SettingError(
                f"the file that {SEAL_KEY_FILE} names is not {KEY_BYTES} bytes in base64",
                f"make one with: (umask 077; openssl rand -base64 {KEY_BYTES} > seal.key)",
            )
        return Secret(Means.KEY, raw)


def passphrase(text: str) -> Secret:
    """The secret that a passphrase is."""
    if not text:
        raise SettingError("the passphrase is empty", REMEDY)
    return Secret(Means.PASSPHRASE, text.encode("utf-8", "surrogateescape"))


def ask_at_terminal(question: str) -> str:
    """A person's answer, unseen."""
    # Standard input may be messages, and without a terminal the question would wait for ever.
    if not sys.stderr.isatty():
        raise SettingError("a passphrase is needed, and there is no terminal to ask at", REMEDY)
    try:
        return getpass.getpass(question)
    except EOFError:
        raise SettingError("a passphrase is needed", REMEDY) from None
