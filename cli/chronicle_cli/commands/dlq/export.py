"""`chronicle dlq export` and `chronicle dlq drop`: dead letters into a file, and out of the queue.

Rule: while a person thinks about the question, the connection that holds the dead letters is served.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from chronicle.captures.file import STDOUT, CaptureFile, open_capture, refuse_stdout
from chronicle.core.deadletters.conditions import Condition
from chronicle.core.encryption import Secret
from chronicle.core.record import dump
from chronicle.core.words import many
from chronicle.deadletters.export import Export, RecordWriter
from chronicle.deadletters.reader import AHEAD
from chronicle.deadletters.redrive import Tally
from chronicle.engine.job import Exit
from chronicle.engine.reconnect import TURN
from chronicle.engine.signals import stop_on_signal
from chronicle.errors import ChronicleError, SettingError
from chronicle_cli import completion, options, report
from chronicle_cli.commands.dlq import options as dlq_options
from chronicle_cli.commands.dlq.options import Aim, aim_of
from chronicle_cli.commands.dlq.summary import interrupted, unseen
from chronicle_cli.commands.dlq.view import counted
from chronicle_cli.given import typed
from chronicle_cli.help import Command, Group, option
from chronicle_cli.passphrase import PassphraseSource
from chronicle_cli.progress import progress


class LazyFile:
    """A file of records, created when there is one to write, with mode 600; encrypted if it has a secret.

    A new one of which not even the first could be written is removed again.
    """

    def __init__(self, path: str, secret: Secret | None, *, new: bool) -> None:
        self.path = path
        self._secret = secret
        self._new = new
        self._file: CaptureFile | None = None

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        if self._file is None:
            known = self._secret
            secret = None if known is None else lambda: known
            self._file = open_capture(self.path, secret, new=self._new, tell=report.warn)
        try:
            self._file.write(records)
        except OSError:
            if self._new and not self._file.count:
                os.unlink(self.path)
            raise

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Stdout:
    """Records on standard output."""

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            report.data(dump(record))

    def sync(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        self.sync()


def secret_of(ctx: click.Context) -> Secret | None:
    """What the file is to be encrypted with; asked for here, before any dead letter is held."""
    ask = PassphraseSource(os.environ, encrypt=ctx.params["encrypt"]).for_writing
    return None if ask is None else ask()


def readable_of(ctx: click.Context, aim: Aim) -> int:
    """Up to which size a body is in its record as text and JSON, too."""
    return aim.max_body if ctx.params["bodies_as_json"] else 0


@click.command(
    "export",
    cls=Command,
    examples="chronicle dlq export --queue cus.12.deliver dead.jsonl\n"
    "CHRONICLE_PASSPHRASE_FILE=secret.txt chronicle dlq export --queue cus.12.deliver --encrypt dead.enc",
)
@click.argument("file", metavar="FILE", shell_complete=completion.files)
@dlq_options.where
@dlq_options.match
@dlq_options.limit("At most this many, oldest first.  [default: all]")
@dlq_options.max_deliveries
@dlq_options.reveal("Allow - as FILE: the records, personal data included, go to standard output.")
@options.bodies_as_json
@options.encrypt
@click.pass_context
def export(
    ctx: click.Context,
    /,
    file: str,
    conditions: tuple[Condition, ...],
    limit: int | None,
    reveal: bool,
    **_: Any,
) -> int:
    """Write dead letters to FILE and leave them in the queue.

    FILE is created with mode 600 and must not exist yet. It has one record per line, with the body exactly as
    it came: `chronicle replay` runs a syncer over it, `chronicle publish` puts it on a queue. It is encrypted
    as a capture is: see `chronicle capture`. For what looking does to a message on RabbitMQ, see
    chronicle dlq --help.
    """
    if file == STDOUT and not reveal:
        raise SettingError(
            "records contain personal data and would be printed", "name a file, or add --reveal"
        )
    if file == STDOUT and ctx.params["encrypt"] and typed(ctx, "encrypt"):
        raise SettingError("--encrypt has no effect on standard output", "name a file")
    if file != STDOUT and os.path.lexists(file):
        raise SettingError(f"{file} already exists", "name a new file")
    aim = aim_of(ctx)
    sink = Stdout() if file == STDOUT else LazyFile(file, secret_of(ctx), new=True)
    with aim.read(limit, ctx.params["max_deliveries"]) as letters:
        work = Export(
            letters, aim.queue, sink, conditions=conditions, limit=limit, max_body=aim.max_body,
            readable=readable_of(ctx, aim),
        )  # fmt: skip
        tally = carried_out(work, sink, aim, letters.present, "written")
    if tally.seen and aim.marks:
        report.note(aim.marks)
    done = f"in {file}; they are still in {aim.dead}"
    if not tally.moved and file != STDOUT:
        done = f"to write: {file} was not created"
    return ending(tally, aim, done, to_stderr=file == STDOUT)


@click.command(
    "drop",
    cls=Command,
    examples="chronicle dlq drop --queue cus.12.deliver --match 'age>30d'\n"
    "chronicle dlq drop --queue cus.12.deliver --match id=1001 --yes",
)
@dlq_options.where
@dlq_options.match
@dlq_options.limit("At most this many, oldest first.  [default: all]")
@option(
    Group.OUTPUT, "--export", "file", metavar="FILE", envvar="CHRONICLE_DLQ_EXPORT",
    help="Write them to this file before they are removed.  [default: QUEUE.dlq-DATE.jsonl]",
)  # fmt: skip
@option(
    Group.OUTPUT, "--no-export", is_flag=True, envvar="CHRONICLE_DLQ_NO_EXPORT",
    help="Keep no copy: what is dropped is gone.",
)  # fmt: skip
@options.bodies_as_json
@options.encrypt
@dlq_options.yes("Do not ask for confirmation.")
@click.pass_context
def drop(
    ctx: click.Context,
    /,
    conditions: tuple[Condition, ...],
    limit: int | None,
    file: str | None,
    no_export: bool,
    yes: bool,
    **_: Any,
) -> int:
    """Remove dead letters for good, after writing them to a file.

    Each batch is on disk before it is removed. The file is created with mode 600, and encrypted as a capture
    is; several drops on one day go to the same file. At a terminal it asks for confirmation; elsewhere it
    needs --yes.
    """
    if file and no_export:
        raise SettingError("--export and --no-export cannot be combined", "leave one of them out")
    if file:
        refuse_stdout(file)
    if no_export and ctx.params["encrypt"] and typed(ctx, "encrypt"):
        raise SettingError("--encrypt has no effect with --no-export", "leave one of them out")
    aim = aim_of(ctx)
    sink = None if no_export else LazyFile(file or default_name(aim.dead), secret_of(ctx), new=False)
    kept = "no copy is kept" if sink is None else f"a copy goes to {sink.path}"
    with aim.read(AHEAD) as letters:
        which = "the matching ones among the" if conditions else "the"
        question = f"Drop {which} {counted(letters.present)} in {aim.dead}? {kept}"
        if letters.present and not yes and not dlq_options.agreed(question, partial(letters.serve, TURN)):
            report.say("nothing dropped")
            return Exit.DONE
        work = Export(
            letters, aim.queue, sink, conditions=conditions, limit=limit, drop=True, max_body=aim.max_body,
            readable=readable_of(ctx, aim),
        )  # fmt: skip
        tally = carried_out(work, sink, aim, letters.present, "dropped")
    where = "" if sink is None or not tally.moved else f"; a copy is in {sink.path}"
    return ending(tally, aim, f"dropped from {aim.dead}{where}")


def carried_out(work: Export, sink: RecordWriter | None, aim: Aim, present: int, doing: str) -> Tally:
    """Run it, stopping on a signal; what was written is complete, whatever happens."""
    try:
        with (
            progress(f"of {aim.dead} looked at", present) as advance,
            stop_on_signal(work.stop, lambda: report.last_words("stopped at once")),
        ):
            tally = work.run(advance)
        if sink is not None:
            sink.close()
        return tally
    except OSError as error:
        report.note(f"{counted(work.tally.moved)} {doing} before that")
        raise SettingError(
            f"the file cannot be written: {error.strerror}", "what was not written is still in the queue"
        ) from None
    except ChronicleError:
        report.note(so_far(work, doing, aim.dead))
        raise


def so_far(work: Export, doing: str, dead: str) -> str:
    """What is certain when the broker was lost: nobody knows what became of a removal without an answer."""
    doubt = ""
    if work.in_doubt:
        whether = many(work.in_doubt, "more is gone", "more are gone")
        doubt = f"; whether {whether} is not known: the broker did not answer"
    return f"{counted(work.tally.moved)} {doing} before that{doubt}; the rest is still in {dead}"


def ending(tally: Tally, aim: Aim, done: str, *, to_stderr: bool = False) -> int:
    """The last lines, and the exit code."""
    (report.note if to_stderr else report.done)(f"{counted(tally.moved)} {done}")
    for line in unseen(tally, aim):
        report.note(line)
    return interrupted(tally) if tally.stopped and tally.seen < tally.present else Exit.DONE


def default_name(dead: str) -> str:
    """`orders.dlq-2026-03-02.jsonl`; a queue's name may contain what a file's must not."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", dead).lstrip(".") or "dlq"
    return f"{safe}-{datetime.now(UTC):%Y-%m-%d}.jsonl"
