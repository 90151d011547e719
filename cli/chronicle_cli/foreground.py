"""A run in the foreground: signals in, exit code out. What `consume` and `replay` share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from chronicle.core.pipeline import Pipeline
from chronicle.core.policy import Policy
from chronicle.engine.job import Ending, Job
from chronicle.engine.runner import Runner
from chronicle.engine.signals import end_process, stop_on_signal
from chronicle.settings import run as settings
from chronicle.settings.run import Work, package_of
from chronicle.telemetry.events import Observer
from chronicle.transports.seam import Transport
from chronicle.workers.loader import Syncer, load
from chronicle_cli import garbage, report
from chronicle_cli.output import configure_logging, logs_json, make_log, make_observer, shows_live
from chronicle_cli.settings import Output

FLUSHING: Final = 2.0  # seconds


def pipeline_of(work: Work, policy: Policy) -> Pipeline:
    """The pipeline for these settings; the key store is read here, before connecting to anything."""
    if not work.keys:
        return settings.pipeline_of(work, policy)
    from chronicle_cli.passphrase import PassphraseSource

    return settings.pipeline_of(work, policy, PassphraseSource(os.environ).unlock)


def load_syncer(work: Work, output: Output) -> Syncer:
    """Find the syncer; what its module logs while it is imported goes where the run's lines will go."""
    configure_logging(make_log(output, report.stderr(), {}), output.log_levels, (package_of(work.syncer),))
    return load(work.syncer, work.app_dir)


def observe(
    output: Output, queue: str, syncer: Syncer, transport: Transport, *, ends: bool = False
) -> Observer:
    """The observer that shows or logs what happens; from here on Python's own logging goes through it.

    Every JSON line says what runs (`trigger`) and where it listens (`connector`), and has the transport's
    labels. `ends` when the run is to empty the queue.
    """
    sink, place = report.stderr(), transport.place
    always = {**transport.promises.labels, "trigger": syncer.name, "connector": place}
    report.speak_json(logs_json(output, sink), always)
    observer = make_observer(output, sink, f"{syncer.name} ← {queue} at {place}", always, ends=ends)
    packages = package_of(syncer.name), str(getattr(syncer.target, "__module__", "")).partition(".")[0]
    configure_logging(observer, output.log_levels, packages)
    return observer


def progress_of(output: Output) -> float:
    """How often a run logs its progress, in seconds; a live view shows it all the time, without a line."""
    return float("inf") if shows_live(output, report.stderr()) else output.progress


def run(
    job: Job,
    transport: Transport,
    observer: Observer,
    begin: Callable[[Callable[[str], None]], None] = lambda _stop: None,
) -> int:
    """Run the job to its end; the exit code. `begin` is given the function that stops the run."""
    ending = run_to_end(job, transport, observer, begin)
    if ending.stuck:
        leave_now(int(ending.code))
    return int(ending.code)


def run_to_end(
    job: Job,
    transport: Transport,
    observer: Observer,
    begin: Callable[[Callable[[str], None]], None] = lambda _stop: None,
) -> Ending:
    """Run the job with signals handled; for callers that still have to report before the process exits."""
    runner = Runner(job, transport, observer)
    garbage.set_aside()
    garbage.look_again()
    begin(runner.stop)
    with stop_on_signal(runner.stop, lambda: report.last_words("unfinished messages go back to the queue")):
        return runner.run()


def leave_now(code: int) -> NoReturn:
    """End the process although a syncer is still running: its thread would hold up a normal exit.

    It may itself be stuck in a print to a stalled terminal: then what is buffered is lost.
    """
    end_process(code, _flush, FLUSHING)


def _flush() -> None:
    report.stderr().finish()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
