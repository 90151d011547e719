"""`chronicle dlq redrive`: bring dead letters back, or try the current syncer on them in place."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from chronicle.core.deadletters.conditions import Condition
from chronicle.core.deadletters.moves import RedrivePlan
from chronicle.core.policy import OnException, OnFailure, OnInvalid, Policy
from chronicle.core.words import many
from chronicle.deadletters.reader import AHEAD
from chronicle.deadletters.redrive import Redrive, Tally
from chronicle.deadletters.verify import VerifyTransport
from chronicle.engine.job import Bounds, Ending, Exit, Job, Lifecycle, Objection
from chronicle.engine.signals import is_signal, stop_on_signal
from chronicle.errors import ChronicleError, NoSuchQueue, SettingError
from chronicle.settings.run import check_name
from chronicle.telemetry.counters import Counters
from chronicle.transports.catalog import open_publisher, open_reader
from chronicle.transports.seam import Reading
from chronicle_cli import options, report
from chronicle_cli.commands.dlq import options as dlq_options
from chronicle_cli.commands.dlq.options import Aim, aim_of
from chronicle_cli.commands.dlq.summary import gone_meanwhile, interrupted, moved, stays, unseen
from chronicle_cli.commands.dlq.view import counted
from chronicle_cli.foreground import leave_now, load_syncer, observe, pipeline_of, progress_of, run_to_end
from chronicle_cli.given import typed
from chronicle_cli.help import Command, Group, option, stack
from chronicle_cli.params import POSITIVE, RATE
from chronicle_cli.progress import progress

EXAMPLES: Final = """
chronicle dlq redrive --queue cus.12.deliver --dry-run
chronicle dlq redrive --queue cus.12.deliver
chronicle dlq redrive --queue cus.12.deliver --match 'reason=timeout' --match 'age<1d' --limit 100 --rate 50/s
chronicle dlq redrive --queue cus.12.deliver --to cus.12.repair --match schema=proca:event:2
chronicle dlq redrive --queue cus.12.deliver --verify my_crm:sync --keys keys.json --yes
"""
TRYING: Final = Policy(OnFailure.DEAD_LETTER, OnInvalid.DEAD_LETTER, OnException.FAIL, trial=True)
MOVING: Final = ("also", "to", "rate", "max_redrives", "dry_run")
VERIFYING: Final = ("yes", "app_dir", "concurrency", "schema", "keys", "sign_keys", "require_decryption",
                    "normalize_events", "log_format", "log_level", "live", "progress",
                    "drain_timeout")  # fmt: skip

moving = stack(
    option(
        Group.WORK, "--also", metavar="NAME", multiple=True, envvar="CHRONICLE_DLQ_ALSO",
        help="Also bring back those that came from this queue, to it. Without this, only those of --queue "
        "go: a producer can write any name into a header. May be repeated; in the variable, separate them "
        "with spaces.",
    ),
    option(
        Group.WORK, "--to", metavar="NAME", envvar="CHRONICLE_DLQ_TO",
        help="Send them to this queue instead of back to where each came from.",
    ),
    option(
        Group.WORK, "--rate", type=RATE, metavar="RATE", envvar="CHRONICLE_DLQ_RATE",
        help="At most this fast: 50/s, 600/min or 100/h.  [default: as fast as the broker takes them]",
    ),
    option(
        Group.WORK, "--max-redrives", type=POSITIVE, default=3, metavar="N",
        envvar="CHRONICLE_DLQ_MAX_REDRIVES",
        help="A message that has been redriven this often stays and is listed: no endless cycles.",
    ),
    option(
        Group.WORK, "--dry-run", is_flag=True, envvar="CHRONICLE_DRY_RUN",
        help="Say what would go where; send nothing, remove nothing.",
    ),
)  # fmt: skip
verify = option(
    Group.WORK, "--verify", metavar="MODULE:NAME", envvar="CHRONICLE_DLQ_VERIFY",
    help="Redrive nothing: run this syncer on each dead letter, for real: what it writes is written. True "
    "removes the letter; any other result leaves it, with the new reason. At a terminal it asks first; "
    "elsewhere it needs --yes. The options below are for this, as in `chronicle consume`.",
)  # fmt: skip
work = stack(
    dlq_options.yes("With --verify: do not ask for confirmation."),
    options.app_dir, options.concurrency, options.schema, options.keys, options.sign_key,
    options.require_decryption, options.normalize_events, options.drain_timeout, options.output,
)  # fmt: skip


@click.command("redrive", cls=Command, examples=EXAMPLES)
@dlq_options.where
@dlq_options.match
@dlq_options.limit("At most this many, oldest first.  [default: all that are there at the start]")
@dlq_options.max_deliveries
@moving
@verify
@work
@click.pass_context
def redrive(ctx: click.Context, /, verify: str | None, **_: Any) -> int:
    """Bring dead letters back to the queue they came from.

    Those that came from --queue go. Others are counted and named, and go where --also or --to says.

    Each is published with its exact body, confirmed by the broker, and then removed: whatever happens, it is
    in one of the queues; at worst a few are in both. Where the broker can move a message in one step, none is
    ever in both. Those that were there at the start are moved; one that
    dies again meanwhile waits for the next run. The headers about its death are removed, and
    x-chronicle-redrives counts up. Ctrl-C finishes the batch and says how far it got.

    Exit codes: 0 done, 1 some could not go (with --verify: some failed), 2 usage or configuration, 3 broker
    not reachable, 4 stopped by a signal before all were done, 128+n forced by a second one.
    """
    unused = MOVING if verify else VERIFYING
    given = [name for name in unused if typed(ctx, name)]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise SettingError(
            f"{flag} has no effect {'with' if verify else 'without'} --verify", "leave out one of the two"
        )
    aim = aim_of(ctx)
    return verified(ctx, aim, verify) if verify else redriven(ctx, aim)


def redriven(ctx: click.Context, aim: Aim) -> int:
    """Move them, and say how many went where."""
    values = ctx.params
    to: str | None = values["to"]
    if to is not None:
        check_name("--to", to)
    if to == aim.dead or aim.dead == aim.queue:
        raise SettingError("the dead letters would go to the queue they are in", "name another queue")
    dry_run: bool = values["dry_run"]
    also: tuple[str, ...] = values["also"]
    for name in also:
        check_name("--also", name)
    if to is not None and also:
        raise SettingError("--also has no effect with --to: all go to one queue", "leave out one of the two")
    homes = frozenset((aim.queue, *also))
    plan = RedrivePlan(homes, values["conditions"], to or "", values["max_redrives"])
    with aim.read(values["limit"] if dry_run else AHEAD, values["max_deliveries"]) as letters:
        run = Redrive(
            letters,
            aim.main,
            plan,
            limit=values["limit"],
            rate=values["rate"] or float("inf"),
            dry_run=dry_run,
            max_body=aim.max_body,
            startup_timeout=aim.startup_timeout,
            tell=report.warn,
        )
        try:
            with (
                progress(f"of {aim.dead} looked at", letters.present) as advance,
                stop_on_signal(run.stop, lambda: report.last_words("stopped at once")),
            ):
                run.run(advance)
        except ChronicleError:
            if not dry_run:
                report.note(f"{moved(run.tally, 'redriven')}; the rest is still in {aim.dead}, run it again")
            raise
    return told(run.tally, aim, dry_run=dry_run)


def told(tally: Tally, aim: Aim, *, dry_run: bool) -> int:
    """What went where and what stays, and the exit code."""
    if tally.refusals and not tally.moved:
        raise next(iter(tally.refusals.values()))
    report.done(moved(tally, "would be redriven" if dry_run else "redriven, confirmed"))
    for line in stays(tally):
        report.say(line)
    for line in unseen(tally, aim):
        report.note(line)
    if tally.stopped and tally.seen < tally.present:
        return interrupted(tally)
    return Exit.FATAL if tally.failed else Exit.DONE


def verified(ctx: click.Context, aim: Aim, syncer: str) -> int:
    """Run the syncer on them in place."""
    ctx.params["syncer"] = syncer
    settings = options.work_of(ctx, aim.where.prefetch)
    report.warn(*settings.warnings)
    output = options.output_of(ctx)
    found = load_syncer(settings, output)
    report.note(
        f"--verify runs {found.name} for real: what it writes is written, and a dead letter that it handles "
        f"is removed from {aim.dead}"
    )
    if not ctx.params["yes"] and not dlq_options.agreed(f"Run it on the dead letters of {aim.queue}?"):
        report.say("nothing was tried")
        return Exit.DONE
    conditions: tuple[Condition, ...] = ctx.params["conditions"]
    # Those that do not match are held to the end and count against the prefetch.
    ahead = AHEAD if conditions else settings.prefetch
    transport = VerifyTransport(
        open_reader(aim.letters, Reading(ahead)),
        partial(open_publisher, aim.letters),
        aim.queue,
        aim.where.tag,
        conditions=conditions,
        limit=ctx.params["limit"],
        max_body=aim.max_body,
    )
    job = Job(
        found,
        pipeline_of(settings, TRYING),
        TRYING,
        settings.concurrency,
        settings.prefetch,
        Bounds(until_empty=True),
        # A bounded run must end: a broker that goes away gets as long as one that was never there.
        Lifecycle(aim.startup_timeout, ctx.params["drain_timeout"], give_up_after=aim.startup_timeout),
        objection=lambda ending: objection_to(ending, transport, ctx.params["limit"]),
        progress=progress_of(output),
    )
    observer = observe(output, aim.dead, found, transport, ends=True)
    try:
        ending = run_to_end(job, transport, observer)
    except NoSuchQueue:
        aim.none()
        report.say(f"{counted(0)} handled and removed")
        return Exit.DONE
    counters = ending.counters
    failing = counters.dead_lettered
    staying = "stays with its new reason" if failing == 1 else "stay with their new reason"
    report.done(f"{counted(counters.ack)} handled and removed, {failing} {staying}")
    if transport.vanished:
        report.note(gone_meanwhile(transport.vanished))
    if (left := untried(transport, counters)) > 0:
        report.note(f"{left} of {transport.present} not tried, and still in {aim.dead}, unchanged")
        if is_signal(ending.reason):
            report.problem(f"interrupted: what was not tried is still in {aim.dead}")
    if ending.stuck:
        leave_now(int(ending.code))
    return int(ending.code)


def untried(transport: VerifyTransport, counters: Counters) -> int:
    """How many of those that were there at the start were not tried."""
    seen = counters.ack + counters.dead_lettered + transport.others + transport.vanished
    return (transport.present or 0) - seen


def objection_to(ending: Ending, transport: VerifyTransport, limit: int | None) -> Objection | None:
    """Why a trial that came to its end has failed, if it has."""
    left = untried(transport, ending.counters)
    if left > 0 and is_signal(ending.reason):
        return Objection("not all were tried", Exit.RETURNED)
    if failed := ending.counters.dead_lettered + ending.counters.ack_retry:
        return Objection(f"{many(failed, 'dead letter')} failed")
    return Objection(f"{many(left, 'dead letter')} not tried") if left > 0 and limit is None else None
