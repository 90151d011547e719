"""The private keys of an organisation, from a file only its owner can read.

Rule 1 (Z8): as with ssh, a key file that is a symbolic link, belongs to another user, or is open to group or
        others is refused, and so is a key of the wrong length or one that does not match its public key.
Rule 2: no error, repr or log ever contains key material. An entry is named by its number, because the public
        and the private key may have been swapped.
Rule 3: a store may be locked; how to unlock it is passed in. It is read and written as a whole.
Rule 4: keys are added, never removed: what was sealed for an old key is opened with the old key.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import stat
import tempfile
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import orjson
from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey

from chronicle.errors import KeyStoreError

KEY_BYTES: Final = 32
MAX_FILE: Final = 1024 * 1024
# A box holds the shared secret, which is expensive to compute. The sender's key is in the message, so
# the number of boxes kept must not be up to the sender.
MAX_BOXES: Final = 64
_KEY_SHAPED: Final = re.compile(r"[A-Za-z0-9_+/-]{43}=?")


# A store's content and its name, for the passphrase prompt; what is not locked is returned as it is.
Unlock: TypeAlias = Callable[[bytes, str], bytes]


class KeyStore:
    """Private keys by their public ones."""

    __slots__ = ("_boxes", "_privates")

    def __init__(self, privates: Mapping[bytes, PrivateKey]) -> None:
        self._privates = dict(privates)
        self._boxes: dict[tuple[str, str], Box] = {}

    @classmethod
    def load(cls, source: str, unlock: Unlock = lambda content, _name: content) -> KeyStore:
        """The keys in a file, or in a text that starts with `{`; raises KeyStoreError."""
        if source.lstrip().startswith("{"):
            name, content = "the key store", source.encode("utf-8", "replace")
        else:
            name, content = _shown(source), _read(source)
        return cls(_pairs(_entries(unlock(content, name), name), name))

    def publics(self) -> tuple[str, ...]:
        """The public keys, in the order of the file."""
        return tuple(encode(public) for public in self._privates)

    def privates(self) -> tuple[bytes, ...]:
        """The private keys, so that whoever prints can hide them."""
        return tuple(map(bytes, self._privates.values()))

    def box(self, encrypt_key: str, sign_key: str) -> Box | None:
        """What opens messages sealed for one key by another; None when the first is not in the store.

        Raises ValueError, TypeError or a CryptoError for invalid keys.
        """
        box = self._boxes.get((encrypt_key, sign_key))
        if box is None:
            public, sender = decode(encrypt_key), decode(sign_key)
            if len(public) != KEY_BYTES or len(sender) != KEY_BYTES:
                raise ValueError("a key has the wrong length")
            private = self._privates.get(public)
            if private is None:
                return None
            box = Box(private, PublicKey(sender))
            if len(self._boxes) >= MAX_BOXES:
                self._boxes.clear()
            self._boxes[encrypt_key, sign_key] = box
        return box

    def __len__(self) -> int:
        return len(self._privates)

    def __repr__(self) -> str:
        return f"<KeyStore {len(self)} keys>"


def new_pair() -> tuple[str, str]:
    """A new public key and its private key, as a key store writes them."""
    private = PrivateKey.generate()
    return encode(bytes(private.public_key)), encode(bytes(private))


def add_key(
    path: str,
    unlock: Unlock = lambda content, _name: content,
    relock: Callable[[bytes], bytes] = lambda content: content,
) -> str:
    """Create a key pair and add it to this key store, which is created if need be; the new public key.

    Existing entries stay as they are, and a locked store stays locked.
    """
    public, private = new_pair()

    def add(content: bytes | None) -> bytes:
        plain = b"{}" if content is None else unlock(content, _shown(path))
        entries = _entries(plain, _shown(path))
        _pairs(entries, _shown(path))
        entries[public] = {"private": private}
        written = orjson.dumps(entries, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        was_locked = content is not None and plain != content
        return relock(written) if was_locked else written

    _rewrite(path, add)
    return public


def change_lock(path: str, change: Callable[[bytes], bytes], unlock: Unlock) -> int:
    """Replace a key store by its locked or unlocked content; how many keys it holds.

    Anything that is not a key store is refused: once locked, it could not be told apart.
    """
    count = 0

    def replaced(content: bytes | None) -> bytes:
        nonlocal count
        if content is None:
            content = _read(path)  # says that there is none
        count = len(_pairs(_entries(unlock(content, _shown(path)), _shown(path)), _shown(path)))
        return change(content)

    _rewrite(path, replaced)
    return count


def _rewrite(path: str, change: Callable[[bytes | None], bytes]) -> None:
    """Replace a key store by what `change` makes of its content; None is a missing store.

    The folder is locked meanwhile, so that two such calls do not lose each other's key, and a crash leaves
    the old file or the new one, never half of one.
    """
    folder = os.path.dirname(path) or "."
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise KeyStoreError(f"no key store can be created at {_shown(path)}: {_why(error)}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _replace(path, folder, change(_read(path) if os.path.lexists(path) else None))
        os.fsync(lock)
    except OSError as error:
        raise KeyStoreError(f"{_shown(path)} cannot be written: {_why(error)}") from None
    finally:
        os.close(lock)


def encode(raw: bytes) -> str:
    """Base64url without padding, as proca writes it."""
    return b2a_base64(raw, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def decode(text: str) -> bytes:
    """Base64url with or without padding; raises ValueError, also for what lenient decoders skip."""
    if not isinstance(text, str):
        raise TypeError("base64 is a text")
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    return a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)


def _read(path: str) -> bytes:
    """The content of a key file that only its owner can read."""
    name = _shown(path)
    try:
        # Without O_NONBLOCK a named pipe would block forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise KeyStoreError(
            f"there is no key store {name}", "create one with `chronicle keys new`, or correct --keys"
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise KeyStoreError(f"{name} is a symbolic link", "name the file itself") from None
        raise KeyStoreError(f"the key store {name} cannot be read: {_why(error)}") from None
    try:
        _trust(os.fstat(descriptor), name)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE:
        raise KeyStoreError(f"the key store {name} is larger than {MAX_FILE} bytes", "is it the right file?")
    return content


def _trust(facts: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise KeyStoreError(f"the key store {name} is not a file", "name the file itself")
    if facts.st_uid != os.geteuid():
        raise KeyStoreError(
            f"the key store {name} belongs to another user", "make the user who runs chronicle its owner"
        )
    if facts.st_mode & 0o077:
        raise KeyStoreError(f"others can read the key store {name}", f"chmod 600 {shlex.quote(name)}")


def _entries(content: bytes, name: str) -> dict[str, Any]:
    try:
        entries = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise KeyStoreError(f"{name} is not JSON (line {error.lineno}, column {error.colno})") from None
    if not isinstance(entries, dict):
        raise KeyStoreError(
            f"{name} is not a JSON object", 'it must look like {"<public>": {"private": "<private>"}}'
        )
    return entries


def _pairs(entries: dict[str, Any], name: str) -> dict[bytes, PrivateKey]:
    """Read both forms of an entry, `{"private": …}` and the older plain text; check each pair."""
    pairs: dict[bytes, PrivateKey] = {}
    for number, (public, value) in enumerate(entries.items(), start=1):
        secret = value.get("private") if isinstance(value, dict) else value
        if not isinstance(secret, str):
            raise KeyStoreError(f"entry {number} of {name} has no private key")
        try:
            key = PrivateKey(decode(secret))
            raw = decode(public)
            belongs = bytes(key.public_key) == raw
        except (ValueError, TypeError, CryptoError):
            raise KeyStoreError(
                f"entry {number} of {name} is not a key pair", f"a key is {KEY_BYTES} bytes in base64url"
            ) from None
        if not belongs:
            raise KeyStoreError(
                f"entry {number} of {name}: the public key does not belong to the private one",
                "are the two swapped, or from different pairs?",
            )
        pairs[raw] = key
    return pairs


def _replace(path: str, folder: str, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".chronicle-keys-", dir=folder)  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _shown(path: str) -> str:
    """The path as an error may show it: a key given in its place is not shown."""
    return "(not shown: it looks like a key)" if _KEY_SHAPED.fullmatch(path) else path


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it is not a usable path"
