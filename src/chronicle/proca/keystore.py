"""The private keys of an organisation, from a file only its owner can read.

Rule 1 (Z8): as with ssh, a key file that is a symbolic link, belongs to another user, or is open to group or
        others is refused (`files.py`), and so is a key of the wrong length or one that does not match its
        public key.
Rule 2: no error, repr or log ever contains key material. An entry is named by its number, because the public
        and the private key may have been swapped.
Rule 3: a store may be locked; how to unlock it is passed in. It is read and written as a whole.
Rule 4: keys are added, never removed: what was sealed for an old key is opened with the old key.
Rule 5: a public key is enough to seal something that opens. Where sign keys are pinned, only what was sealed
        with one of them is opened; they come from the list in the store and from the caller.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import orjson
from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey

from chronicle.errors import KeyStoreError, UnknownSigner
from chronicle.files import open_own

KEY_BYTES: Final = 32
MAX_FILE: Final = 1024 * 1024
# A box holds the shared secret, which is expensive to compute. The sender's key is in the message, so
# the number of boxes kept must not be up to the sender.
MAX_BOXES: Final = 64
SIGN_KEYS: Final = "signKeys"  # the one entry of a store that is not a key pair
SHOWN: Final = 8  # characters of a public key, enough to tell it from the others
_KEY_SHAPED: Final = re.compile(r"[A-Za-z0-9_+/-]{43}=?")


# A store's content and its name, None if it was given as text; what is not locked is returned as it is.
Unlock: TypeAlias = Callable[[bytes, str | None], bytes]


class KeyStore:
    """Private keys by their public ones, and the sign keys that are pinned."""

    __slots__ = ("_boxes", "_privates", "_signers")

    def __init__(self, privates: Mapping[bytes, PrivateKey], signers: Iterable[bytes] = ()) -> None:
        self._privates = dict(privates)
        self._signers = dict.fromkeys(signers)
        self._boxes: dict[tuple[bytes, bytes], Box] = {}

    @classmethod
    def load(
        cls,
        source: str,
        unlock: Unlock = lambda content, _name: content,
        sign_keys: Iterable[str] = (),
    ) -> KeyStore:
        """The keys in a file, or in a text that starts with `{`; raises KeyStoreError.

        `sign_keys` are pinned in addition to those that the store lists.
        """
        if source.lstrip().startswith("{"):
            name, content = "the key store", unlock(source.encode("utf-8", "replace"), None)
        else:
            name, content = _shown(source), unlock(_read(source), _shown(source))
        entries = _entries(content, name)
        given = [sign_key(text, f"--sign-key {number}") for number, text in enumerate(sign_keys, start=1)]
        return cls(_pairs(entries, name), [*_signers(entries, name), *given])

    def publics(self) -> tuple[str, ...]:
        """The public keys, in the order of the file."""
        return tuple(encode(public) for public in self._privates)

    def signers(self) -> tuple[str, ...]:
        """The pinned sign keys; without any, what anybody sealed is opened."""
        return tuple(encode(signer) for signer in self._signers)

    def privates(self) -> tuple[bytes, ...]:
        """The private keys, so that whoever prints can hide them."""
        return tuple(map(bytes, self._privates.values()))

    def box(self, encrypt_key: str, sign_key: str) -> Box | None:
        """What opens messages sealed for one key by another; None when the first is not in the store.

        Raises UnknownSigner when sign keys are pinned and the second is not one of them; ValueError,
        TypeError or a CryptoError for invalid keys.
        """
        # By the bytes, never by the text: one key has any number of spellings, of any length.
        public, sender = decode(encrypt_key), decode(sign_key)
        box = self._boxes.get((public, sender))
        if box is None:
            if len(public) != KEY_BYTES or len(sender) != KEY_BYTES:
                raise ValueError("a key has the wrong length")
            private = self._privates.get(public)
            if private is None:
                return None
            if self._signers and sender not in self._signers:
                raise UnknownSigner(
                    f"the message's personal data was sealed with the key {encode(sender)[:SHOWN]}…, which "
                    "is not one of the pinned sign keys"
                )
            box = Box(private, PublicKey(sender))
            if len(self._boxes) >= MAX_BOXES:
                self._boxes.clear()
            self._boxes[public, sender] = box
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
    *,
    lock_new: bool = False,
) -> str:
    """Create a key pair and add it to this key store, which is created if need be; the new public key.

    Existing entries stay as they are, and a locked store stays locked; with `lock_new` a new one is, too.
    """
    public, private = new_pair()

    def add(content: bytes | None) -> bytes:
        plain = b"{}" if content is None else unlock(content, _shown(path))
        entries = _entries(plain, _shown(path))
        _pairs(entries, _shown(path))
        entries[public] = {"private": private}
        written = orjson.dumps(entries, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        is_locked = lock_new if content is None else plain != content
        return relock(written) if is_locked else written

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
        descriptor = open_own(path, os.O_RDONLY, kind="the key store", shown=name, error=KeyStoreError)
    except FileNotFoundError:
        raise KeyStoreError(
            f"there is no key store {name}", "create one with `chronicle keys new`, or correct --keys"
        ) from None
    except (OSError, ValueError) as error:
        raise KeyStoreError(f"the key store {name} cannot be read: {_why(error)}") from None
    with open(descriptor, "rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise KeyStoreError(f"the key store {name} is larger than {MAX_FILE} bytes", "is it the right file?")
    return content


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
        if public == SIGN_KEYS:
            continue
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


def _signers(entries: dict[str, Any], name: str) -> list[bytes]:
    """The sign keys that a store lists."""
    if SIGN_KEYS not in entries:
        return []
    listed = entries[SIGN_KEYS]
    if not isinstance(listed, list) or not listed:  # an empty list could mean everybody or nobody
        raise KeyStoreError(
            f"{SIGN_KEYS} in {name} is not a list of keys",
            f'write "{SIGN_KEYS}": ["<public>"], or leave it out',
        )
    return [sign_key(text, f"{SIGN_KEYS} in {name}, entry {at}") for at, text in enumerate(listed, start=1)]


def sign_key(text: Any, what: str) -> bytes:
    """A pinned key; the error names it by its place, because it may be a private key by mistake."""
    try:
        raw = decode(text)
    except (ValueError, TypeError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise KeyStoreError(f"{what} is not a key", f"a key is {KEY_BYTES} bytes in base64url")
    return raw


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
