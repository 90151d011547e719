"""The public names for hiding secrets, personal data, and values in tracebacks."""

from chronicle.telemetry.redaction.personal import mask
from chronicle.telemetry.redaction.secrets import Secrets, clean, redact
from chronicle.telemetry.redaction.traces import reason_of, trace_of

__all__ = ["Secrets", "clean", "mask", "reason_of", "redact", "trace_of"]
