"""`chronicle capture`: copy the messages of a queue to a file and leave them in the queue."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final

import click

from chronicle.captures.file import CaptureFile, open_capture
from chronicle.captures.snapshot import Copied, Snapshot
from chronicle.core.body import MAX_BODY
from chronicle.core.words import many
from chronicle.engine.job import Exit
from chronicle.engine.signals import stop_on_signal
from chronicle.errors import ChronicleError
from chronicle_cli import completion, options, report
from chronicle_cli.broker_options import own_options
from chronicle_cli.help import Command, Group, option
from chronicle_cli.log_levels import quiet_clients
from chronicle_cli.params import POSITIVE
from chronicle_cli.passphrase import PassphraseSource
from chronicle_cli.progress import progress

EXAMPLES: Final = """
chronicle capture --queue cus.12.deliver messages.jsonl
chronicle capture --queue cus.12.deliver --limit 10 sample.jsonl
CHRONICLE_PASSPHRASE_FILE=secret.txt chronicle capture --queue cus.12.deliver --encrypt messages.encrypted
chronicle replay --syncer my_crm:sync messages.jsonl
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("file", metavar="FILE", shell_complete=completion.files)
@options.where
@own_options("capture")
@options.startup_timeout
@option(
    Group.BOUNDS, "--limit", type=POSITIVE, metavar="N", envvar="CHRONICLE_LIMIT",
    help="At most this many messages, from the head of the queue.  [default: all that are waiting]",
)  # fmt: skip
@option(
    Group.BOUNDS, "--max-deliveries", type=POSITIVE, default=10, metavar="N",
    envvar="CHRONICLE_MAX_DELIVERIES",
    help="Stop at a message that a quorum queue has delivered more often than this: beyond its limit (20 "
    "unless set otherwise) such a queue dead-letters or drops it.",
)  # fmt: skip
@options.bodies_as_json
@options.encrypt
@click.pass_context
def command(
    ctx: click.Context, /, file: str, limit: int | None, max_deliveries: int, encrypt: bool | None, **_: Any
) -> int:
    """Copy the messages of a queue to a file and leave them in the queue.

    FILE is created with mode 600 and must not exist yet. It has one record per line: the body as it came,
    headers, and where it came from. The messages waiting at the start are copied, in order; all of them are
    held meanwhile and returned at the end.

    The embedded queue is left exactly as it was. RabbitMQ marks the messages as redelivered, so under
    requeue-once the next failure of each is its last; a quorum queue counts a delivery. To capture without
    that, and with the outcome of every message, use `consume --capture`.

    With --encrypt, or if one of these is set, the file is encrypted with a passphrase (from
    CHRONICLE_PASSPHRASE, the file named by CHRONICLE_PASSPHRASE_FILE, or a prompt) or with the key in the
    file named by CHRONICLE_ENCRYPT_KEY_FILE.
    """
    where = options.where_of(ctx)
    report.note(where.notice)
    report.warn(*where.warnings)
    if where.broker.marks:
        report.warn(f"{where.broker.marks}: {where.broker.marks_mean}")
    quiet_clients()
    secrets = PassphraseSource(os.environ, encrypt=encrypt)
    capture = open_capture(file, secrets.for_writing, new=True)
    try:
        with progress(f"of {where.queue} in {file}") as advance:
            copying = Snapshot(
                where.connector(),
                capture,
                limit=limit,
                most_deliveries=max_deliveries,
                readable=MAX_BODY if ctx.params["bodies_as_json"] else 0,
                startup_timeout=ctx.params["startup_timeout"],
                tell=report.warn,
                advance=advance,
            )
            with stop_on_signal(copying.stop, lambda: report.last_words("stopped at once")):
                copied = copying.run()
        capture.close()
    except OSError as error:
        capture.abandon()
        if not capture.count:
            os.unlink(file)
        report.problem(f"{file} cannot be written: {error.strerror}", "all messages are still in the queue")
        return Exit.FATAL
    except ChronicleError:
        give_up(capture, file, where.queue)
        raise
    return told(copied, file, where.queue)


def give_up(capture: CaptureFile, file: str, queue: str) -> None:
    """Close a capture that ends early; one without a message in it is removed."""
    with suppress(OSError):
        capture.close()
        if not capture.count:
            os.unlink(file)
            return
    report.note(f"{file} is incomplete: it has {many(capture.count, 'message')}; all are still in {queue}")


def told(copied: Copied, file: str, queue: str) -> int:
    """Say what is in the file; the exit code."""
    if copied.stopped and not copied.count:
        os.unlink(file)
        report.problem("interrupted before the first message was copied")
        return Exit.RETURNED
    report.done(f"{many(copied.count, 'message')} of {queue} copied to {file}; all are still in the queue")
    if copied.stopped and copied.count < copied.wanted:
        report.problem("interrupted: the file is incomplete")
        return Exit.RETURNED
    if copied.count < copied.wanted:
        missed = copied.wanted - copied.count
        waited = many(missed, "more was", "more were")
        report.warn(f"{waited} waiting at the start: held by other consumers, or delayed")
    return Exit.DONE
