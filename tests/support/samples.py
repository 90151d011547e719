"""The sample messages and keys, as tests use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chronicle.core.delivery import Delivery
from chronicle.proca.keystore import KeyStore

FOLDER = Path(__file__).parents[1] / "samples"


def body(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def message(name: str) -> Any:
    return json.loads(body(name))


def keys() -> KeyStore:
    return KeyStore.load(body("keys.json").decode())


def delivery(content: bytes | object, **facts: Any) -> Delivery:
    """A delivery of these bytes, or of this value as JSON."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Delivery(raw, **{"queue": "q", "transport": "test", **facts})
