"""The front door of everything that hides: secrets, personal data, values in tracebacks."""

from chronicle.telemetry.personal import mask
from chronicle.telemetry.secrets import Secrets, clean, hide_url, redact
from chronicle.telemetry.traces import reason_of, trace_of

__all__ = ["Secrets", "clean", "hide_url", "mask", "reason_of", "redact", "trace_of"]
