"""The public names for hiding secrets, personal data, and values in tracebacks."""

from chronicle.telemetry.redaction.known import KNOWN, passwords_in, secrets_in
from chronicle.telemetry.redaction.needles import BUDGET
from chronicle.telemetry.redaction.personal import Mask, mask
from chronicle.telemetry.redaction.secrets import one_line, redact
from chronicle.telemetry.redaction.spans import cap, clean, clean_json
from chronicle.telemetry.redaction.traces import Place, name_of, reason_of, stack_of, trace_of, words_of

__all__ = [
    "BUDGET",
    "KNOWN",
    "Mask",
    "Place",
    "cap",
    "clean",
    "clean_json",
    "mask",
    "name_of",
    "one_line",
    "passwords_in",
    "reason_of",
    "redact",
    "secrets_in",
    "stack_of",
    "trace_of",
    "words_of",
]
