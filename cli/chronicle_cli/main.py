"""The command `chronicle`: finds the sub-command, loads `.env`, and turns errors into lines and exit codes.

Rule 1: a command's file is imported only when that command runs; the help needs none of them.
Rule 2: a problem the operator can solve is one line and a remedy, never a traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EMFILE, ENFILE
from traceback import walk_tb
from typing import Any, Final

import click

from chronicle import __version__
from chronicle.engine.signals import heed_no_signal, interrupt_on_signal
from chronicle.errors import ChronicleError, SyncerError
from chronicle_cli import garbage, report
from chronicle_cli.dotenv_file import load_env
from chronicle_cli.help import write_examples
from chronicle_cli.log_mode import says_json
from chronicle_cli.variables import unknown

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "consume": ("chronicle_cli.commands.consume:command", "Run a syncer over a queue."),
    "replay": ("chronicle_cli.commands.replay:command", "Run a syncer over messages in files, no broker."),
    "capture": ("chronicle_cli.commands.capture:command", "Copy the messages of a queue to a file."),
    "declare": (
        "chronicle_cli.commands.declare:command",
        "Create a queue and what it needs: dead letters, retry queues.",
    ),
    "publish": ("chronicle_cli.commands.publish:command", "Publish messages from files to a queue."),
    "dlq": (
        "chronicle_cli.commands.dlq.group:command",
        "Inspect dead letters, export them, and redrive them.",
    ),
    "keys": (
        "chronicle_cli.commands.keys:command",
        "Create, list, check and lock the keys for personal data.",
    ),
}

EXAMPLES: Final = """
chronicle consume --queue cus.12.deliver --syncer my_crm:sync
chronicle consume --url amqps://me@broker.example/live --queue orders --syncer sync.py:run --until-empty
chronicle publish --queue demo messages.jsonl
chronicle dlq list --queue cus.12.deliver
chronicle keys new keys.json
chronicle COMMAND --help
"""


LINGER: Final = 2.0  # seconds
WAITS: Final = (
    "done, and waiting for threads or processes that the syncer has started and not ended, or for what it "
    "does at exit; a signal ends it"
)
COMPLETING: Final = "_CHRONICLE_COMPLETE"  # set by the script of a shell, or by whoever wants that script
INTERRUPTED: Final = 4  # as engine.job.Exit.RETURNED; the help should not pay for importing that


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        garbage.set_aside()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            # click looks for similar names among the commands that it has loaded.
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=COMMANDS, ctx=error.ctx
            ) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would print an empty line, also among lines of JSON
            raise click.Abort from None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(EXAMPLES, formatter)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="chronicle")
@click.option(
    "--env-file",
    metavar="FILE",
    type=click.Path(readable=False),  # for the shell, which offers files
    envvar="CHRONICLE_ENV_FILE",
    show_envvar=True,
    help="Read variables from this file instead of .env in this folder.",
)
@click.option(
    "--env-allow",
    metavar="NAME",
    multiple=True,
    envvar="CHRONICLE_ENV_ALLOW",
    show_envvar=True,
    help="Also take this variable from the file; repeatable. Without it, only CHRONICLE_… and PROCA_… are.",
)
@click.pass_obj
def cli(args: Sequence[str] | None, /, env_file: str | None, env_allow: tuple[str, ...]) -> None:
    """Run your function over a message queue, safely.

    Every option can also be set as a variable CHRONICLE_…, in the environment or in .env in this folder; a
    flag overrides the environment, which overrides .env. proca's own PROCA_… variables come last. The file
    must be yours, with mode 600.
    """
    slips = tuple(unknown(os.environ, strangers=False))  # before the file adds its own, which it names itself
    warnings = load_env(env_file, os.environ, env_allow)
    _choose_words(args or ())  # the file may say how to log
    report.warn(*slips, *warnings)


def main() -> None:
    """The command line of this process (__main__.py)."""
    _fill_closed_streams()
    code = INTERRUPTED
    with suppress(KeyboardInterrupt):  # by a signal that comes a moment before it is awaited, or after
        interrupt_on_signal(lambda: report.last_words("stopped at once"))
        code = run(sys.argv[1:])
        heed_no_signal()
    heed_no_signal()  # there is nothing left to stop in good order
    _do_not_linger(code)
    sys.exit(code)


def _fill_closed_streams() -> None:
    """Open the null device in place of a closed standard stream: the next file would take its descriptor.

    Anything written to that stream would then end up in a queue file.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _do_not_linger(code: int) -> None:
    """Python waits for threads and processes that a syncer's module left behind.

    A failed process exits all the same (D-17); one that is done lets them finish, and says why it is there.
    """
    late = threading.Timer(LINGER, lambda: os._exit(code) if code else report.note(WAITS))
    late.daemon = True
    with suppress(RuntimeError):  # the system has no thread left
        late.start()


def run(args: Sequence[str]) -> int:
    """Run the command line; the exit code (X6)."""
    _choose_words(args)
    if COMPLETING in os.environ:
        from chronicle_cli.completion import use_own_scripts

        use_own_scripts()
    try:
        code = cli.main(args=list(args), prog_name="chronicle", standalone_mode=False, obj=args)
        _flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _misused(error)
    except ChronicleError as error:
        return _failed(error)
    except (click.Abort, KeyboardInterrupt):
        report.begin_line()  # a prompt may have left one unfinished
        report.problem("interrupted before it was done")
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_stdout()  # the reader is gone
        return 1
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (EMFILE, ENFILE):
            return _out_of_files(error)
        if not _while_printing(error):
            return _broken(error)
        _give_up_stdout()
        report.problem(f"standard output cannot be written: {_why_not_printed(error)}")
        return 1
    except Exception as error:
        return _broken(error)


def _choose_words(args: Sequence[str]) -> None:
    """Decide whether what this command says on stderr is JSON."""
    report.speak_json(says_json(args, os.environ, lambda: report.stderr().is_terminal))


def _flush() -> None:
    # A syncer may have closed it (`with sys.stdout as file`), or put something else in its place.
    if not getattr(sys.stdout, "closed", sys.stdout is None):
        sys.stdout.flush()


def _why_not_printed(error: OSError | ValueError) -> str:
    match error:
        case UnicodeEncodeError():
            return (
                f"its encoding {error.encoding} has not all of these characters; set PYTHONIOENCODING=utf-8"
            )
        case ValueError():
            return "it is closed"
    return error.strerror or type(error).__name__


def _while_printing(error: BaseException) -> bool:
    """Whether it was standard output that failed: the error itself does not name the file."""
    printing = (click.echo.__code__, _flush.__code__)
    return any(frame.f_code in printing for frame, _ in walk_tb(error.__traceback__))


def _give_up_stdout() -> None:
    """Discard what is still buffered: Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _misused(error: click.ClickException) -> int:
    """A wrong command line: one line and where to read more; the whole help if there was no command."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "chronicle"
    report.problem(" ".join(error.format_message().split()), f"see {where} --help", exit_code=2)
    return 2


def _failed(error: ChronicleError) -> int:
    """One of chronicle's own errors; the tree in errors.py gives its exit code."""
    trace = error.trace if isinstance(error, SyncerError) else ""
    report.problem(str(error), error.remedy, trace=trace, exit_code=error.exit_code)
    return error.exit_code


def _out_of_files(error: OSError) -> int:
    """More connections and files than the system allows: its limit is too low, or a syncer leaks."""
    report.problem(
        f"{error.strerror}: this process, or the machine, may open no more",
        "raise the limit (ulimit -n, or LimitNOFILE= under systemd); a few hundred are plenty for chronicle "
        "itself, so see whether your syncer closes what it opens",
        exit_code=1,
    )
    return 1


def _broken(error: BaseException) -> int:
    """A bug in chronicle: where it happened, without values."""
    from chronicle.telemetry.redaction import trace_of

    nothing: Any = None
    trace = trace_of(error, nothing)
    report.problem(
        "this is a bug in chronicle itself", "please report it with its traceback", trace=trace, exit_code=1
    )
    return 1
