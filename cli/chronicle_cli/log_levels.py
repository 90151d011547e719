"""Who may log how much.

Rule 1: one level is for chronicle and for the syncer's own package; other libraries log warnings, until they
        are named: `info,httpx=info`.
Rule 2: a broker's client is silent until it is named: chronicle reports a lost connection itself, once.
        Bodies are never logged, whoever is named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import cache
from typing import Final

from chronicle.core.frozen import frozen
from chronicle.transports.catalog import brokers

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
OURS: Final = "chronicle"
REST: Final = "root"  # as Python calls it: every logger that nobody names
OWN: Final = frozenset((OURS, "chronicle_cli", "chronicle_syncers"))
TAKES: Final = f"a level ({', '.join(LEVELS)}), and LOGGER=LEVEL for others, such as info,httpx=info"


@frozen
class LogLevels:
    """The level of chronicle and the syncer, and of the loggers that are named."""

    own: int = logging.INFO
    named: tuple[tuple[str, int], ...] = ()

    @property
    def rest(self) -> int:
        """The level of everybody else."""
        return dict(self.named).get(REST, max(self.own, logging.WARNING))

    def least(self, packages: Collection[str]) -> Callable[[str], int]:
        """The level of a logger by its name; `packages` are the syncer's own."""
        own = OWN | set(packages)

        @cache
        def level_of(logger: str) -> int:
            among = [(name, level) for name, level in self.named if _is_under(logger, name)]
            if among:
                return max(among, key=lambda one: len(one[0]))[1]  # the closest of them
            # What is logged without a logger's name is, as a rule, the syncer's.
            return self.own if logger == REST or logger.partition(".")[0] in own else self.rest

        return level_of

    def apply(self) -> None:
        """Tell Python's loggers, so that what nobody sees is not even made."""
        logging.getLogger().setLevel(min(self.own, self.rest))
        telltale = [name for broker in brokers() for name in broker.telltale_loggers]
        for name in telltale:
            logging.getLogger(name).setLevel(logging.NOTSET)
        if REST not in dict(self.named):
            quiet_clients()
        for name, level in self.named:
            if name != REST:
                logging.getLogger(name).setLevel(level)
        for name in telltale:
            logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger(name).getEffectiveLevel()))


def _is_under(logger: str, name: str) -> bool:
    return name != REST and (logger == name or logger.startswith(f"{name}."))


def quiet_clients() -> None:
    """Silence the brokers' clients; they log many lines for what chronicle reports in one."""
    for name in (name for broker in brokers() for name in broker.loggers):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def parse_levels(text: str) -> LogLevels:
    """`info`, or `chronicle=info,httpx=debug`. Raises ValueError with what is taken, and what was meant."""
    own: int | None = None
    named: dict[str, int] = {}
    for part in text.split(","):
        name, equals, word = part.strip().rpartition("=")
        name = name.strip() if equals else OURS
        level = LEVELS.get(word.strip())
        if level is None or not name:
            raise ValueError(TAKES + _meant(word.strip(), LEVELS))
        if name != OURS:
            named[name] = level
            if meant := _meant(name, (OURS,)):
                raise ValueError(TAKES + meant)
        elif own is not None:
            raise ValueError(f"{TAKES}; chronicle's own level only once")
        else:
            own = level
    return LogLevels(logging.INFO if own is None else own, tuple(named.items()))


def _meant(word: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # only a typo pays for it

    close = get_close_matches(word.lower(), known, 1, 0.7)
    return f"; did you mean {close[0]}?" if close else ""
