"""Personal data that only the receiving organisation can open: NaCl boxes, as proca seals them.

Rule 1 (Z7): one error text for every failure, so that it does not reveal which part was wrong.
Rule 2 (D-20): a key that is not in the store is not a failure; the result is None and the caller reports it.
Rule 3: what was opened is returned and not kept.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from nacl.exceptions import CryptoError

from chronicle.errors import CannotDecrypt
from chronicle.proca.keystore import KeyStore, decode

# A contact is nearly flat. The limit keeps what a stranger sealed from being nested without end.
MAX_OBJECTS: Final = 200


def open_personal_info(info: Any, keys: KeyStore) -> dict[str, Any] | None:
    """The fields sealed in a `personalInfo`, or None when its key is not in the store."""
    try:
        box = keys.box(info["encryptKey"]["public"], info["signKey"]["public"])
        nonce, payload = decode(info["nonce"]), decode(info["payload"])
        if box is None:
            return None
        plain = box.decrypt(payload, nonce)
        opened = orjson.loads(plain)
    # A lookup in a non-object, a text that is not base64, a nonce of the wrong length, a
    # failed authentication, a plaintext that is not JSON.
    except (KeyError, TypeError, ValueError, CryptoError):
        raise _refused() from None
    if not isinstance(opened, dict) or plain.count(b"{") + plain.count(b"[") > MAX_OBJECTS:
        raise _refused()
    return opened


def _refused() -> CannotDecrypt:
    return CannotDecrypt("the message's personal data is damaged or was not sealed for this key")
