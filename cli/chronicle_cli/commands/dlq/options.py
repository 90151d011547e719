"""What the commands of `chronicle dlq` share: their options, and which two queues they are about."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from chronicle.core.deadletters.conditions import Condition, parse_condition
from chronicle.core.frozen import frozen
from chronicle.core.queues import dead_letter_queue
from chronicle.deadletters.reader import WORN_AFTER, dead_letters, no_letters, nothing_died
from chronicle.errors import NoSuchQueue, SettingError
from chronicle.settings.run import Where, check_name
from chronicle.transports.seam import Connector, Reader
from chronicle_cli import options, report
from chronicle_cli.broker_options import own_options
from chronicle_cli.completion import words
from chronicle_cli.help import Decorator, Group, option, stack
from chronicle_cli.log_levels import quiet_clients
from chronicle_cli.params import POSITIVE, SIZE, refuse

BEGINNINGS: Final = ("reason=", "id=", "entry=", "schema=", "age>", "age<")


class Matching(click.ParamType[Condition]):
    """One condition on dead letters; in the variable, several are separated by semicolons."""

    name = "condition"
    envvar_list_splitter = ";"

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return words(BEGINNINGS, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Condition:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return parse_condition(value)
        except ValueError as error:
            refuse(str(error), value, param, ctx)


dlq = option(
    Group.WHERE, "--dlq", metavar="NAME", envvar="CHRONICLE_DLQ",
    help="The queue that keeps the dead letters.  [default: QUEUE.dlq]",
)  # fmt: skip
max_body = option(
    Group.WORK, "--max-body", type=SIZE, default="16MiB", metavar="SIZE", envvar="CHRONICLE_MAX_BODY",
    help="A dead letter with a larger body is not parsed: it has no id and no schema to show or to match. "
    "With --verify it is bad input, as in `chronicle consume`.",
)  # fmt: skip
where = stack(options.where, own_options("dlq"), dlq, options.startup_timeout, max_body)
match = option(
    Group.WORK, "--match", "conditions", type=Matching(), multiple=True, metavar="CONDITION",
    envvar="CHRONICLE_DLQ_MATCH",
    help="Only these dead letters: reason=TEXT (contains the text), id=N or id=N,N… (actionId), entry=ID (as "
    "`dlq show` prints it, or as the log named it), schema=NAME, age>1d or age<1h (since it died). May be "
    "repeated: all must hold. In the variable, separate them with semicolons.",
)  # fmt: skip
max_deliveries = option(
    Group.BOUNDS, "--max-deliveries", type=POSITIVE, default=WORN_AFTER, metavar="N",
    envvar="CHRONICLE_DLQ_MAX_DELIVERIES",
    help="Republish a message to the end of its quorum queue once it has been delivered this often: beyond "
    "its limit (20 unless set otherwise) such a queue drops it. Stay below that limit.",
)  # fmt: skip
as_json = option(
    Group.OUTPUT, "--json", "as_json", is_flag=True, envvar="CHRONICLE_DLQ_JSON",
    help="Print JSON, one object per line.",
)  # fmt: skip


def limit(help_text: str, default: int | None = None) -> Decorator[Any]:
    """`--limit`; each command says what it limits."""
    return option(
        Group.BOUNDS, "--limit", type=POSITIVE, default=default, metavar="N", envvar="CHRONICLE_LIMIT",
        help=help_text,
    )  # fmt: skip


def yes(help_text: str) -> Decorator[Any]:
    """Without this, a person is asked."""
    return option(Group.WORK, "--yes", is_flag=True, envvar="CHRONICLE_DLQ_YES", help=help_text)


def agreed(question: str, meanwhile: Callable[[], None] | None = None) -> bool:
    """Ask for confirmation; `meanwhile` is called again and again until there is an answer."""
    if not sys.stdin.isatty():
        raise SettingError(
            "this needs confirmation, and there is no terminal to ask at", "add --yes if you are sure"
        )
    while True:
        report.ask(f"{question} [y/N]:")
        # A terminal has something to read when a whole line is there.
        while meanwhile is not None and not select.select([sys.stdin], [], [], 0.0)[0]:
            meanwhile()
        answer = sys.stdin.readline()
        if not answer:
            raise click.Abort
        match answer.strip().lower():
            case "y" | "yes":
                return True
            case "n" | "no" | "":
                return False
        report.note("please answer y or n")


def reveal(help_text: str) -> Decorator[Any]:
    """Without this, no message content is shown."""
    return option(Group.OUTPUT, "--reveal", is_flag=True, envvar="CHRONICLE_DLQ_REVEAL", help=help_text)


@frozen
class Aim:
    """The queue, and the queue of its dead letters."""

    where: Where
    dead: str
    startup_timeout: float
    max_body: int
    named: bool = False  # the queue of the dead letters was

    @property
    def queue(self) -> str:
        return self.where.queue

    @property
    def main(self) -> Connector:
        return self.where.connector()

    @property
    def letters(self) -> Connector:
        return replace(self.main, queue=self.dead)

    @property
    def marks(self) -> str:
        """What looking does to a message; empty when it does nothing."""
        return self.where.broker.marks

    @contextmanager
    def read(self, ahead: int | None, worn_after: int = WORN_AFTER) -> Iterator[Reader]:
        """The dead letters, to be read once; at most `ahead` are fetched before they are asked for."""
        found = dead_letters(
            self.letters, ahead, worn_after, startup_timeout=self.startup_timeout, tell=report.warn
        )
        with ExitStack() as opened:
            try:
                letters = opened.enter_context(found)
            except NoSuchQueue:
                letters = self.none()
            yield letters

    def none(self) -> Reader:
        """No dead letters, because there is no such queue; NoSuchQueue if that is a slip in a name."""
        if self.named:
            raise no_letters(self.letters)
        letters = nothing_died(self.main, self.dead)
        report.note(
            f"there is no {self.dead}: nothing has died yet, or the dead letters are in another queue "
            "(--dlq), or nowhere"
        )
        return letters


def aim_of(ctx: click.Context) -> Aim:
    """Which queues are meant; prints the notices and warnings about where they are."""
    found = options.where_of(ctx)
    dead = ctx.params["dlq"] or dead_letter_queue(found.queue)
    check_name("--dlq", dead)
    report.note(found.notice)
    report.warn(*found.warnings)
    quiet_clients()
    return Aim(
        found, dead, ctx.params["startup_timeout"], ctx.params["max_body"], named=bool(ctx.params["dlq"])
    )
