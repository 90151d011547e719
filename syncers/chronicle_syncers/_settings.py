"""Settings of the ready-made syncers, read from environment variables.

Rule: an error names the variable and what is wrong with it, never its value, which may contain a secret.
"""

from __future__ import annotations

from collections.abc import Mapping

from chronicle.errors import SettingError


def required(environ: Mapping[str, str], name: str, example: str) -> str:
    """The value of a variable that must be set."""
    value = environ.get(name, "").strip()
    if not value:
        raise SettingError(f"{name} is not set", f"set it, for example {name}={example}")
    return value


def flag(environ: Mapping[str, str], name: str) -> bool:
    """A switch: 1 is on; 0, empty and absent are off."""
    value = environ.get(name, "").strip()
    if value not in ("", "0", "1"):
        raise SettingError(f"{name} is neither 0 nor 1", f"set {name}=1 or leave it out")
    return value == "1"


def seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    """A number of seconds above zero, at most an hour."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise SettingError(
            f"{name} is not a number of seconds above 0, up to 3600", f"for example {name}={default:g}"
        )
    return value
