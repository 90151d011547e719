"""Encrypted files, which need a passphrase or a key to read: captures and key stores at rest.

    {"sealed":"chronicle:2","with":"passphrase","n":65536,"r":8,"p":2,"salt":"…","proof":"…"}
    <base64 of nonce and ciphertext>          one line for each line of the content
    …
    <base64 of nonce and ciphertext>          of empty content: the writer finished

Rule 1: a line is bound to its header and to the tag of the line before it, and so to all before it. A line
        that was changed, moved, added, or removed from the middle is detected, and so is the end of an older
        state of the file behind a newer beginning. Every line has its own random nonce: a file can be
        truncated and appended to without reusing one.
Rule 2: a file may grow. A writer that continues one needs its last two lines: it decrypts the last one first.
Rule 3: an incomplete last line, or no closing line, means that the writer was killed or the file was
        truncated: what is there can be read, and the reader warns. An earlier state of the whole file in its
        place is like that, or cannot be detected at all if it was closed: only somebody outside could know.
Rule 4: no error contains a secret. The header's proof exposes a wrong secret before any line is decrypted.
Rule 5: the lengths of the lines are visible; nothing else about the content is.
Rule 6: a header is anybody's word: what it may cost is limited before any work is done.
"""

from __future__ import annotations

import hmac
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, TypeAlias

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from chronicle.core.frozen import frozen
from chronicle.core.json_tags import from_base64, to_base64
from chronicle.errors import SettingError

MAGIC: Final = b'{"sealed":"chronicle:'  # the format's own word, in every version
VERSION: Final = "chronicle:2"
OLD: Final = "chronicle:1"  # lines were bound to their numbers only
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
PROOF_BYTES: Final = 16
MAX_HEADER: Final = 1000
MAX_WORK: Final = 2**22  # n·r·p: four times what is written; a forged header must not cost more
MAX_MEMORY: Final = 2**21  # n·r, of 128 bytes each: 256 MiB


class SecretKind(StrEnum):
    """What a file is encrypted with."""

    PASSPHRASE = "passphrase"
    KEY = "key"


@frozen
class Secret:
    """A passphrase, or a key of 32 random bytes; never shown."""

    kind: SecretKind
    content: bytes = field(repr=False)


@frozen
class Cost:
    """The scrypt parameters for a passphrase: 64 MiB and a quarter of a second, each time."""

    n: int = 2**16
    r: int = 8
    p: int = 2


# Called only for an encrypted file, with the kind of secret it needs and its name for the prompt.
AskSecret: TypeAlias = Callable[[SecretKind, str], Secret]
Randomness: TypeAlias = Callable[[int], bytes]


class FileCipher:
    """Encrypts or decrypts the lines of one file, in order."""

    def __init__(self, header: bytes, key: bytes) -> None:
        self.header = header
        self.before = b""  # the tag of the line before the next one
        self._aead = AESGCM(key)

    def encrypt(self, content: bytes, randomness: Randomness) -> bytes:
        """The next line, encrypted; empty content makes the closing line."""
        nonce = randomness(NONCE_BYTES)
        line = nonce + self._aead.encrypt(nonce, content, self.header + self.before)
        self.before = line[-TAG_BYTES:]
        return to_base64(line).encode()

    def decrypt(self, line: bytes) -> bytes:
        """The content of the next line; raises ValueError if it is not what was written there."""
        try:
            raw = _raw(line)
            content = self._aead.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], self.header + self.before)
        except (InvalidTag, ValueError):
            raise ValueError("it was changed or moved, or lines before it are missing") from None
        self.before = raw[-TAG_BYTES:]
        return content

    def resume(self, last: bytes, before: bytes | None) -> None:
        """Be ready for the line after `last`; `before` is the one before it. Raises ValueError."""
        self.before = b"" if before is None else _raw(before)[-TAG_BYTES:]
        self.decrypt(last)


def _raw(line: bytes) -> bytes:
    try:
        return from_base64(line.decode("ascii"))
    except (NotBase64, UnicodeDecodeError, ValueError):
        raise ValueError("it was changed: it is not base64") from None


def is_encrypted(content: bytes) -> bool:
    """Whether these are the first bytes of an encrypted file, of any version."""
    return content.startswith(MAGIC)


def new_cipher(secret: Secret, randomness: Randomness, cost: Cost | None = None) -> FileCipher:
    """The cipher for a new file; its header is the first line."""
    facts: dict[str, Any] = {"sealed": VERSION, "with": secret.kind}
    if secret.kind is SecretKind.PASSPHRASE:
        cost = cost or Cost()
        facts |= {"n": cost.n, "r": cost.r, "p": cost.p}
    salt = randomness(SALT_BYTES)
    key, proof = _derive(secret, salt, cost)
    facts |= {"salt": to_base64(salt), "proof": to_base64(proof)}
    return FileCipher(orjson.dumps(facts), key)


def cipher_from_header(header: bytes, ask: AskSecret, name: str) -> FileCipher:
    """The cipher for a file that begins with this line; raises SettingError, also for a wrong secret."""
    try:
        kind, salt, proof, cost = _parse_header(header)
    except _OldFormatError:
        raise SettingError(
            f"{name}, line 1: it is encrypted in the format of an early version, which is no longer read",
            "decrypt it with the version that wrote it, and encrypt it again with this one",
        ) from None
    except (KeyError, TypeError, ValueError):
        raise SettingError(
            f"{name}, line 1: it is encrypted in a format this version does not know, or the line is damaged",
            "use an undamaged copy, or a newer version",
        ) from None
    secret = ask(kind, name)
    if secret.kind is not kind:
        raise SettingError(f"{name} is encrypted with a {kind}", f"a {secret.kind} was given")
    try:
        key, right = _derive(secret, salt, cost)
    except MemoryError:
        raise SettingError(
            f"{name}, line 1: there is not enough memory to check the passphrase", "it needs up to 256 MiB"
        ) from None
    if not hmac.compare_digest(right, proof):
        raise SettingError(f"this {kind} does not decrypt {name}", "was it encrypted with a different one?")
    return FileCipher(header, key)


def decrypt_lines(
    lines: Iterable[bytes], ask: AskSecret, name: str, tell: Callable[[str], None]
) -> Iterator[tuple[int, bytes]]:
    """The decrypted lines of a file, with their numbers; raises SettingError for a damaged one."""
    cipher: FileCipher | None = None
    closed = False
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break  # incomplete: the writer was stopped in the middle of it
        if cipher is None:
            cipher = cipher_from_header(line.rstrip(b"\n"), ask, name)
            continue
        try:
            content = cipher.decrypt(line.rstrip(b"\n"))
        except ValueError as error:
            raise SettingError(f"{name}, line {number}: {error}", "use an undamaged copy") from None
        closed = not content
        if content:
            yield number, content
    else:
        if closed:
            return
    tell(f"{name} has no closing line: it was truncated, or its writer was stopped; reading what is there")


def encrypt_whole(content: bytes, secret: Secret, randomness: Randomness, cost: Cost | None = None) -> bytes:
    """Short content as one encrypted file."""
    cipher = new_cipher(secret, randomness, cost)
    lines = (cipher.header, cipher.encrypt(content, randomness), cipher.encrypt(b"", randomness))
    return b"".join(line + b"\n" for line in lines)


def decrypt_whole(file: bytes, ask: AskSecret, name: str) -> bytes:
    """The content of a file from `encrypt_whole`; raises SettingError if any of it is missing."""
    cut: list[str] = []
    contents = [content for _, content in decrypt_lines(file.splitlines(True), ask, name, cut.append)]
    if cut or len(contents) != 1:
        raise SettingError(f"{name} is incomplete: it was truncated", "use an undamaged copy")
    return contents[0]


class _OldFormatError(Exception):
    """The file was written before lines were chained."""


def _parse_header(header: bytes) -> tuple[SecretKind, bytes, bytes, Cost | None]:
    if len(header) > MAX_HEADER:
        raise ValueError("too long for a header")
    facts = orjson.loads(header)
    if facts["sealed"] == OLD:
        raise _OldFormatError
    if facts["sealed"] != VERSION:
        raise ValueError("unknown version")
    kind = SecretKind(facts["with"])
    salt, proof = from_base64(facts["salt"]), from_base64(facts["proof"])
    if kind is SecretKind.KEY:
        return kind, salt, proof, None
    n, r, p = (facts[name] for name in ("n", "r", "p"))
    sane = all(type(number) is int and number > 0 for number in (n, r, p)) and n > 1 and not n & (n - 1)
    if not sane or n * r * p > MAX_WORK or n * r > MAX_MEMORY:
        raise ValueError("not a usable cost")
    if n >= 2 ** (16 * min(r, 8)):  # scrypt's own limit
        raise ValueError("not a usable cost")
    return kind, salt, proof, Cost(n, r, p)


def _derive(secret: Secret, salt: bytes, cost: Cost | None) -> tuple[bytes, bytes]:
    """The key for a file, and the proof that a secret is the right one."""
    length = KEY_BYTES + PROOF_BYTES
    if cost is None:
        raw = HKDF(SHA256(), length, salt, VERSION.encode()).derive(secret.content)
    else:
        raw = Scrypt(salt, length, cost.n, cost.r, cost.p).derive(secret.content)
    return raw[:KEY_BYTES], raw[KEY_BYTES:]
