"""`chronicle publish`: publish messages from files to a queue, each confirmed by the broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import click

from chronicle.captures.sources import (
    MAX_DEPTH,
    TRANSPORT,
    Check,
    FileReader,
    check_message,
    check_plain,
    find_messages,
    once_only,
)
from chronicle.core.body import parse
from chronicle.core.delivery import Delivery
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.queues import is_dead_letter_queue
from chronicle.core.words import many
from chronicle.engine.job import Exit
from chronicle.engine.publication import Publication, in_batches, reached
from chronicle.errors import (
    BrokerRefused,
    ChronicleError,
    MessageError,
    NotAllowed,
    SettingError,
)
from chronicle.settings.run import Where
from chronicle.transports.catalog import check_letters
from chronicle_cli import completion, options, report
from chronicle_cli.broker_options import own_options
from chronicle_cli.help import Command, Group, option
from chronicle_cli.log_levels import quiet_clients
from chronicle_cli.params import POSITIVE, OneOf
from chronicle_cli.passphrase import PassphraseSource
from chronicle_cli.progress import progress

SCHEMA: Final = OneOf(Schema)
EXAMPLES: Final = """
chronicle publish --queue demo message.json more-messages.jsonl
chronicle publish --url amqp://me@localhost/ --queue cus.12.deliver captured/
chronicle publish --url redis://localhost:6379/0 --queue orders orders.jsonl
cat messages.jsonl | chronicle publish --queue demo -
chronicle publish --queue demo --dry-run folder/
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE…", shell_complete=completion.files)
@options.encrypted
@options.where
@own_options("publish")
@options.startup_timeout
@option(
    Group.WORK, "--schema", type=SCHEMA, metavar=SCHEMA.metavar, envvar="CHRONICLE_SCHEMA",
    help="What a message in a file must be, as in `chronicle consume`; raw: anything, sent as it stands. The "
    "first that is something else is named, and nothing is sent. Records are not checked.  "
    "[default: any JSON]",
)  # fmt: skip
@option(
    Group.WORK, "--repeat", type=POSITIVE, default=1, metavar="N", envvar="CHRONICLE_REPEAT",
    help="Publish everything this many times; for benchmarks.",
)  # fmt: skip
@option(
    Group.WORK, "--dry-run", is_flag=True, envvar="CHRONICLE_DRY_RUN",
    help="Only read, check and count the messages; connect to nothing, send nothing.",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, files: Sequence[str], repeat: int, dry_run: bool, **_: Any) -> int:
    """Publish messages from files to a queue.

    FILE is one JSON document, JSON lines, a folder of such files (*.json, *.jsonl), or - for standard input.
    A record (a line of a capture or of a dead-letter export) keeps its exact body, headers and properties;
    any other line is a message as it stands, and must be JSON, unless --schema says otherwise. Files are
    checked before the first message is sent; standard input as it is read. Encrypted captures are decrypted:
    see `chronicle capture`. The command succeeds only when the broker has confirmed every message.
    """
    where = options.where_of(ctx)
    report.note(where.notice)
    report.warn(*where.warnings)
    if not is_dead_letter_queue(where.queue):  # what is put back there has died already
        check_letters(where.connector(), where.broker)
    if repeat > 1 and (what := once_only(files)):
        raise SettingError(f"{what} cannot be read twice", "leave out --repeat, or name a file")
    secrets = PassphraseSource(os.environ, encrypt=ctx.params["encrypt"])

    check = check_of(ctx.params["schema"])
    reader = FileReader(where.queue, ask=secrets.to_decrypt, tell=report.warn, encrypted=secrets.encrypts)

    def read(check: Check | None) -> Iterator[Delivery]:
        found = (find_messages(files, replace(reader, check=check)) for _ in range(repeat))
        return (one.delivery for one in chain(next(found), chain.from_iterable(found)))

    if dry_run:
        return rehearse(read(None), check, where)
    messages = read(check)
    if check is not None:
        check_plain(files, replace(reader, check=check))
    return send(messages, where, ctx.params["startup_timeout"])


def send(messages: Iterator[Delivery], where: Where, startup_timeout: float) -> int:
    """Publish, and report at the end what is certain to be on the queue."""
    quiet_clients()
    with reached(where.connector(), startup_timeout, report.warn) as publisher:
        publication = Publication(publisher)
        try:
            with progress(f"on {where.queue}, confirmed") as advance:
                publication.run(in_batches(messages), advance)
        except KeyboardInterrupt:
            report.problem(f"interrupted: {counted(publication.confirmed)} on {where.queue}, confirmed")
            return 128 + publication.signal if publication.forced else Exit.RETURNED
        except ChronicleError as error:
            report.problem(str(error), error.remedy)
            rest = rest_after(error, publication.confirmed)
            report.note(f"{counted(publication.confirmed)} on {where.queue}, confirmed; the rest {rest}")
            return stopped_by(error)
    report.done(f"{counted(publication.confirmed)} on {where.queue}, confirmed")
    return Exit.DONE


def check_of(schema: Schema | None) -> Check | None:
    """What a plain message must pass: that it is JSON, or all that `consume` would ask of it."""
    if schema is None:
        return lambda message: parse(message.body, len(message.body), MAX_DEPTH)
    return None if schema is Schema.RAW else Pipeline(schema, max_body=sys.maxsize).prepare


def rehearse(messages: Iterator[Delivery], check: Check | None, where: Where) -> int:
    """Read and count them all, and how many would be refused; the exit code."""
    number = bad = 0
    first: SettingError | None = None
    for message in messages:
        number += 1
        try:
            if message.transport == TRANSPORT and check is not None:
                check_message(message, check)
        except SettingError as error:
            bad += 1
            first = first or error
    report.say(
        f"{counted(number)}{f', {bad} of them bad,' if bad else ''} for {where.queue}; nothing was sent"
    )
    if first is not None:
        raise first
    return Exit.DONE


def rest_after(error: ChronicleError, confirmed: int) -> str:
    """What became of the messages that were not confirmed."""
    # A message that cannot be sent is alone in its batch, or none of its batch was sent; one that cannot be
    # read comes before its batch.
    if isinstance(error, MessageError | SettingError):
        return "was not sent"
    # A permission that was lost on the way may have been there for some of the batch.
    return "was refused" if isinstance(error, NotAllowed) and not confirmed else "is uncertain"


def stopped_by(error: ChronicleError) -> Exit:
    """The exit code of a publication that was started but not finished."""
    # What the broker refuses now it took a moment ago, but for a permission that is not there.
    refused = isinstance(error, BrokerRefused) and not isinstance(error, NotAllowed)
    return Exit.FATAL if refused else Exit(error.exit_code)


def counted(number: int) -> str:
    return many(number, "message")
