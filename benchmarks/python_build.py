"""How the Python that runs the benchmark was built.

It is a quarter of what everything in Python costs, and nothing of what the reference costs: whoever compares
the two must know it.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from enum import StrEnum
from typing import Final

PROFILED: Final = "--enable-optimizations"
SYSTEM: Final = "/usr"


class Build(StrEnum):
    """Who built it and how. Distributions optimise theirs in ways that it does not tell."""

    DISTRIBUTION = "the distribution's"
    PROFILED = f"built with {PROFILED}"
    PLAIN = f"built without {PROFILED}"


def python_build(prefix: str = sys.base_prefix, arguments: str | None = None) -> Build:
    """Of the Python in this folder that was configured with these arguments; as a rule, this one."""
    if prefix == SYSTEM:
        return Build.DISTRIBUTION
    given = sysconfig.get_config_var("CONFIG_ARGS") if arguments is None else arguments
    return Build.PROFILED if PROFILED in (given or "") else Build.PLAIN


def python_version() -> str:
    """Its version with its build."""
    return f"{platform.python_version()} ({python_build()})"


def python_slug() -> str:
    """The same as the name of a folder."""
    return f"python-{platform.python_version()}-{python_build().name.lower()}"
