"""How a run is shown: what the command line adds to the settings that programs have, too."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from chronicle.core.frozen import frozen
from chronicle_cli.log_levels import LogLevels


class LogFormat(StrEnum):
    """How a run logs."""

    AUTO = "auto"
    PRETTY = "pretty"
    JSON = "json"


@frozen
class Output:
    """How a run is shown; `live` is None if it was not set."""

    log_format: LogFormat = LogFormat.AUTO
    log_levels: LogLevels = field(default_factory=LogLevels)
    live: bool | None = None
    progress: float = 0.0  # seconds between two lines about it; 0: none
