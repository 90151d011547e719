"""Files that only a passphrase or a key opens: captures and key stores at rest.

    {"sealed":"chronicle:1","with":"passphrase","n":65536,"r":8,"p":2,"salt":"…","proof":"…"}
    <base64 of nonce and ciphertext>          one line for each line of the content
    …
    <base64 of nonce and ciphertext>          of nothing: the writer was done

Rule 1: a line is bound to its header and to its number, so a line that was changed, moved, added or taken
        out of the middle is found. Every line has a random nonce of its own: a file may be cut off and
        written on without one being used twice.
Rule 2: a file may grow. Whoever goes on writing opens the last line first and counts on from there.
Rule 3: a torn last line, and an end without the closing line, are a writer that was killed, or a file that
        was cut off: what is there can be read, and the reader says so.
Rule 4: no error holds a secret. A wrong secret is known by the header's proof, before any line is opened.
Rule 5: the lengths of the lines can be seen; nothing else of the content can.
"""

from __future__ import annotations

import hmac
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from chronicle.core.json_tags import from_base64, to_base64
from chronicle.errors import SettingError

MAGIC: Final = b'{"sealed":"chronicle:'
VERSION: Final = "chronicle:1"
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
PROOF_BYTES: Final = 16
MAX_HEADER: Final = 1000
MAX_WORK: Final = 2**24  # n·r·p: about half a minute; a forged header must not keep us busy for longer
MAX_MEMORY: Final = 2**23  # n·r, of 128 bytes each: one GiB


class Means(StrEnum):
    """What opens a file."""

    PASSPHRASE = "passphrase"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Secret:
    """A passphrase, or a key of 32 random bytes; never shown."""

    means: Means
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Cost:
    """What scrypt is asked to do for a passphrase: 64 MiB and a quarter of a second, each time."""

    n: int = 2**16
    r: int = 8
    p: int = 2


# Asked only when something sealed turns up: what it takes, and the name of the file, for the question.
AskSecret: TypeAlias = Callable[[Means, str], Secret]
Randomness: TypeAlias = Callable[[int], bytes]


class Seal:
    """Seals or opens the lines of one file, in their order."""

    def __init__(self, header: bytes, key: bytes) -> None:
        self.header = header
        self._cipher = AESGCM(key)
        self._position = 0

    def close(self, content: bytes, randomness: Randomness) -> bytes:
        """The next line, sealed; the closing line if there is no content."""
        nonce = randomness(NONCE_BYTES)
        line = nonce + self._cipher.encrypt(nonce, content, self._bound())
        self._position += 1
        return to_base64(line).encode()

    def open(self, line: bytes) -> bytes:
        """The content of the next line; raises ValueError if it is not what was sealed there."""
        try:
            raw = from_base64(line.decode("ascii"))
            content = self._cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], self._bound())
        except (NotBase64, UnicodeDecodeError, InvalidTag, ValueError):
            raise ValueError("it was changed or moved, or lines before it are missing") from None
        self._position += 1
        return content

    def skip(self, lines: int) -> None:
        """Go on after so many lines more."""
        self._position += lines

    def _bound(self) -> bytes:
        return self.header + self._position.to_bytes(8, "big")


def is_sealed(content: bytes) -> bool:
    """Whether these are the first bytes of a sealed file, of whatever version."""
    return content.startswith(MAGIC)


def new_seal(secret: Secret, randomness: Randomness, cost: Cost | None = None) -> Seal:
    """The seal of a new file; its header is the first line."""
    facts: dict[str, Any] = {"sealed": VERSION, "with": secret.means}
    if secret.means is Means.PASSPHRASE:
        cost = cost or Cost()
        facts |= {"n": cost.n, "r": cost.r, "p": cost.p}
    salt = randomness(SALT_BYTES)
    key, proof = _derived(secret, salt, cost)
    facts |= {"salt": to_base64(salt), "proof": to_base64(proof)}
    return Seal(orjson.dumps(facts), key)


def known_seal(header: bytes, ask: AskSecret, name: str) -> Seal:
    """The seal of a file that begins with this line; raises SettingError, also for a wrong secret."""
    try:
        means, salt, proof, cost = _parts(header)
    except (KeyError, TypeError, ValueError):
        raise SettingError(
            f"{name} is sealed in a way that this version does not know, or its first line is damaged"
        ) from None
    secret = ask(means, name)
    if secret.means is not means:
        raise SettingError(f"{name} is sealed with a {means}", f"and a {secret.means} was given")
    key, right = _derived(secret, salt, cost)
    if not hmac.compare_digest(right, proof):
        raise SettingError(f"this {means} does not open {name}", "was it sealed with another one?")
    return Seal(header, key)


def open_lines(
    lines: Iterable[bytes], ask: AskSecret, name: str, tell: Callable[[str], None]
) -> Iterator[tuple[int, bytes]]:
    """The contents of a sealed file's lines, with their numbers; raises SettingError for a damaged one."""
    seal: Seal | None = None
    closed = False
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break  # torn: whoever wrote it was stopped in the middle
        if seal is None:
            seal = known_seal(line.rstrip(b"\n"), ask, name)
            continue
        try:
            content = seal.open(line.rstrip(b"\n"))
        except ValueError as error:
            raise SettingError(f"{name}, line {number}: {error}", "use an undamaged copy") from None
        closed = not content
        if content:
            yield number, content
    else:
        if closed:
            return
    tell(f"{name} has no closing line: it was cut off, or its writer was stopped; what is there is read")


def seal_whole(content: bytes, secret: Secret, randomness: Randomness, cost: Cost | None = None) -> bytes:
    """A short content as one sealed file."""
    seal = new_seal(secret, randomness, cost)
    lines = (seal.header, seal.close(content, randomness), seal.close(b"", randomness))
    return b"".join(line + b"\n" for line in lines)


def open_whole(sealed: bytes, ask: AskSecret, name: str) -> bytes:
    """The content of what `seal_whole` made; raises SettingError if a part is missing."""
    cut: list[str] = []
    contents = [content for _, content in open_lines(sealed.splitlines(True), ask, name, cut.append)]
    if cut or len(contents) != 1:
        raise SettingError(f"{name} is not whole: it was cut off", "use an undamaged copy")
    return contents[0]


def _parts(header: bytes) -> tuple[Means, bytes, bytes, Cost | None]:
    if len(header) > MAX_HEADER:
        raise ValueError("no header is so long")
    facts = orjson.loads(header)
    if facts["sealed"] != VERSION:
        raise ValueError("another version")
    means = Means(facts["with"])
    salt, proof = from_base64(facts["salt"]), from_base64(facts["proof"])
    if means is Means.KEY:
        return means, salt, proof, None
    n, r, p = (facts[name] for name in ("n", "r", "p"))
    sane = all(type(number) is int and number > 0 for number in (n, r, p)) and n > 1 and not n & (n - 1)
    if not sane or n * r * p > MAX_WORK or n * r > MAX_MEMORY:
        raise ValueError("no such cost")
    return means, salt, proof, Cost(n, r, p)


def _derived(secret: Secret, salt: bytes, cost: Cost | None) -> tuple[bytes, bytes]:
    """The key of a file, and the proof that a secret is the right one."""
    length = KEY_BYTES + PROOF_BYTES
    if cost is None:
        raw = HKDF(SHA256(), length, salt, VERSION.encode()).derive(secret.content)
    else:
        raw = Scrypt(salt, length, cost.n, cost.r, cost.p).derive(secret.content)
    return raw[:KEY_BYTES], raw[KEY_BYTES:]
