"""`chronicle replay`: run a syncer over captured messages or plain JSON files, without a broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import click

from chronicle.captures.file import CaptureFile, open_capture
from chronicle.captures.sources import FileReader, Found, find_messages, once_only, refuse_to_write
from chronicle.core.account import account_of, tells_outcome, went_wrong
from chronicle.core.delivery import Delivery
from chronicle.core.record import to_record
from chronicle.core.settlement import Settlement
from chronicle.core.words import many
from chronicle.engine.job import Bounds, Ending, Exit, Job, Objection
from chronicle.errors import SettingError
from chronicle.transports.memory import MemoryTransport
from chronicle.workers.loader import Syncer
from chronicle_cli import limit_options, options, report
from chronicle_cli.completion import files
from chronicle_cli.foreground import load_syncer, observe, pipeline_of, progress_of, run
from chronicle_cli.help import Command
from chronicle_cli.passphrase import PassphraseSource
from chronicle_cli.replay_report import ReplayReport, changed, comparison, failures_in, fresh, table

EXAMPLES = """
chronicle replay --syncer my_crm:sync messages/
chronicle replay --syncer my_crm:sync --keys keys.json capture.jsonl --dead-letters failed.jsonl
chronicle replay --syncer my_crm:sync --only-failed handled.jsonl
chronicle replay --syncer my_crm:sync --against new_crm:sync handled.jsonl
chronicle replay --syncer chronicle_syncers.console:sync --schema json - < orders.jsonl
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=files)
@click.option(
    "--dead-letters",
    metavar="FILE",
    shell_complete=files,
    envvar="CHRONICLE_REPLAY_DEAD_LETTERS",
    show_envvar=True,
    help="Write dead-lettered messages to this file, one record per line (mode 600).",
)
@click.option(
    "--only-failed",
    is_flag=True,
    envvar="CHRONICLE_ONLY_FAILED",
    show_envvar=True,
    help="Replay only messages that had failed when consume --capture captured them.",
)
@click.option(
    "--against",
    metavar="MODULE:NAME",
    shell_complete=files,
    envvar="CHRONICLE_AGAINST",
    show_envvar=True,
    help="Also run this syncer over the same messages, and show which outcomes changed; code 1 if any did.",
)
@options.encrypted
@options.work
@options.outcome
@limit_options.replaying
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    dead_letters: str | None,
    only_failed: bool,
    against: str | None,
    **_: object,
) -> int:
    """Run a syncer over captured messages or plain JSON files, without a broker.

    A PATH is a file with one message, a file of JSON lines (plain messages or captured records), a folder of
    such files, or - for standard input. The verdicts are those of `consume`: a failed message is retried in
    memory, immediately, ignoring --retry-delay. Ends with code 1 if any message failed; with --against, if
    any outcome changed.

    An encrypted capture is decrypted with the passphrase in CHRONICLE_PASSPHRASE or in the file
    CHRONICLE_PASSPHRASE_FILE names (else you are prompted), or with the key in CHRONICLE_ENCRYPT_KEY_FILE.
    If one of these is set, a file that is not encrypted is refused, unless --plain is given.
    """
    work, output = options.work_of(ctx), options.output_of(ctx)
    report.warn(*work.warnings)
    if against and (what := "--dead-letters" if dead_letters else once_only(paths)):
        raise SettingError(
            f"{what} cannot be used with --against", "leave one out: the messages are read twice"
        )
    secrets = PassphraseSource(os.environ, encrypt=ctx.params["encrypt"])
    reader = FileReader("replay", ask=secrets.to_decrypt, tell=report.warn, encrypted=secrets.encrypts)

    def messages() -> Messages:
        found = find_messages(paths, reader)
        return Messages(failed_before(found, report.warn) if only_failed else found)

    if against:
        syncers = load_syncer(work, output), load_syncer(replace(work, syncer=against), output)
        return compare(ctx, syncers, messages)
    if dead_letters is not None:
        refuse_to_write(dead_letters, paths, "--dead-letters")
    source = messages()  # before there is a new file, which may be in a folder that is read
    with DeadLetterFile(dead_letters) as file:
        code, tally = replayed(ctx, load_syncer(work, output), source, on_dead_letter=file.write)
    report.say(*table(tally))
    if source.cut_short:
        report.problem("interrupted", "messages that are not in the table were not tried")
    return code


def replayed(
    ctx: click.Context,
    syncer: Syncer,
    messages: Messages,
    *,
    on_dead_letter: Callable[[Settlement], None] = lambda _: None,
    objection: Callable[[ReplayReport], Objection | None] = failures_in,
    remember: bool = False,
) -> tuple[int, ReplayReport]:
    """Run one syncer over the messages; the run's exit code, and what became of them."""

    def objects(_ending: Ending) -> Objection | None:
        messages.cut_short = not messages.at_end
        return Objection("before the end", Exit.RETURNED) if messages.cut_short else objection(tally)

    work, policy = options.work_of(ctx), replace(options.policy_of(ctx), retry_delays=(0.0,), rehearsal=True)
    transport = MemoryTransport(messages, on_dead_letter=on_dead_letter, place="files")
    output = options.output_of(ctx)
    tally = ReplayReport(observe(output, "replay", syncer, transport, ends=True), remember=remember)
    pipeline, bounds = pipeline_of(work, policy), Bounds(until_empty=True)
    job = Job(
        syncer,
        pipeline,
        policy,
        work.concurrency,
        work.prefetch,
        bounds,
        limits=limit_options.limits_of(ctx),
        objection=objects,
        progress=progress_of(output),
    )
    return run(job, transport, tally), tally


def compare(ctx: click.Context, syncers: tuple[Syncer, Syncer], messages: Callable[[], Messages]) -> int:
    """Run one syncer after the other; each reads the messages afresh, so neither sees the other's changes."""
    tallies: list[ReplayReport] = []

    def changes(tally: ReplayReport) -> Objection | None:
        """Asked only of a run that came to its end."""
        tallies.append(tally)
        number = len(changed(tallies[0], tally))
        return Objection(f"{many(number, 'outcome')} changed") if number else None

    for syncer in syncers:
        source = messages()
        code, tally = replayed(ctx, syncer, source, objection=changes, remember=True)
        if tally not in tallies:
            interrupted = "interrupted: " if source.cut_short else ""
            report.problem(
                f"{interrupted}{syncer.name} did not finish, so nothing is compared",
                ""
                if interrupted
                else "an exception ends a run; with --on-exception fail it counts as a failure",
            )
            return code
    old, new = tallies
    report.say(*comparison((syncers[0].name, syncers[1].name), old, new, changed(old, new)))
    return code


class Messages:
    """Messages from files, each as if it came for the first time."""

    def __init__(self, found: Iterator[Found]) -> None:
        self._found = found
        self.at_end = False
        self.cut_short = False  # the run ended well, but before that

    def __iter__(self) -> Iterator[Delivery]:
        for found in self._found:
            yield fresh(found)
        self.at_end = True


def failed_before(found: Iterator[Found], tell: Callable[[str], None]) -> Iterator[Found]:
    """The messages that failed when they were captured; SettingError here if none records its outcome."""
    recorded = bare = 0

    def failed() -> Iterator[Found]:
        nonlocal recorded, bare
        for one in found:
            if not tells_outcome(one.account):
                bare += 1
                continue
            recorded += 1
            if went_wrong(one.account):
                yield one
        if recorded and bare:
            tell(f"skipped {many(bare, 'message')} without a recorded outcome")

    chosen = failed()
    first = next(chosen, None)
    if not recorded:
        raise SettingError(
            "--only-failed: none of these messages records how it was handled",
            "only `consume --capture` records that; leave out --only-failed to replay all",
        )
    return chosen if first is None else chain((first,), chosen)


class DeadLetterFile:
    """Where `--dead-letters` go: a file like a capture, each record written as soon as its message dies."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: CaptureFile | None = None

    def __enter__(self) -> DeadLetterFile:
        if self._path is not None:
            self._file = open_capture(self._path, None, tell=report.warn)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.abandon()

    def write(self, settlement: Settlement) -> None:
        if self._file is None:
            return
        account = account_of(settlement, int(time.time() * 1000))
        try:
            self._file.write([to_record(settlement.delivery, account)])
        except OSError as error:
            raise SettingError(
                f"--dead-letters {self._path} cannot be written: {error.strerror}",
                "free some space, and replay the messages that are missing there",
            ) from None
