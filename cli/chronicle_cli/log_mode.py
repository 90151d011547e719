"""Whether what a command says on stderr is JSON, decided before its options are read.

Rule 1: a run logs JSON where `--log-format` says so, or where nobody sits at a terminal; then everything else
        that its command says is JSON, too, and so is an error about its options.
Rule 2: so the command line is only looked at, not parsed: what makes no sense counts as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

FLAGS_OF_GROUP: Final = ("--env-file", "--env-allow")  # they take a value
TRUE: Final = frozenset(("1", "true", "t", "yes", "y", "on"))


def is_json(log_format: str, *, live: bool, terminal: bool) -> bool:
    """Whether a run logs JSON lines; otherwise lines for people, or the live view."""
    return log_format == "json" or (log_format != "pretty" and not terminal and not live)


def says_json(args: Sequence[str], environ: Mapping[str, str], terminal: Callable[[], bool]) -> bool:
    """Whether these arguments and variables ask for JSON lines."""
    command, rest = _command(list(args))
    if command == "dlq":
        command, rest = _command(rest)
        if command != "redrive" or not (_value("--verify", rest) or environ.get("CHRONICLE_DLQ_VERIFY")):
            return False
    elif command not in ("consume", "replay"):
        return False
    log_format = _value("--log-format", rest) or environ.get("CHRONICLE_LOG_FORMAT", "")
    live = environ.get("CHRONICLE_LIVE", "").lower() in TRUE
    for arg in _flags(rest):
        live = arg == "--live" if arg in ("--live", "--no-live") else live
    return is_json(log_format, live=live, terminal=terminal())


def _command(args: list[str]) -> tuple[str, list[str]]:
    """The first word that is no flag, and what follows it."""
    while args:
        first = args.pop(0)
        if first in FLAGS_OF_GROUP:
            del args[:1]
        elif not first.startswith("-"):
            return first, args
    return "", args


def _flags(args: list[str]) -> list[str]:
    return args[: args.index("--")] if "--" in args else args


def _value(flag: str, args: list[str]) -> str:
    """The value of a flag, the last one given."""
    flags, found = _flags(args), ""
    for arg, following in zip_longest(flags, flags[1:], fillvalue=""):
        if arg == flag:
            found = following
        elif arg.startswith(f"{flag}="):
            found = arg.partition("=")[2]
    return found
