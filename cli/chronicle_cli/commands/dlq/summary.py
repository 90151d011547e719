"""The closing report of a pass over dead letters: what moved, what stays and why, what was not looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronicle.core.deadletters.letter import Letter
from chronicle.core.deadletters.moves import Why
from chronicle.core.words import many
from chronicle.deadletters.redrive import Tally
from chronicle.engine.job import Exit
from chronicle.telemetry.events import label, number
from chronicle_cli import report
from chronicle_cli.commands.dlq.options import Aim
from chronicle_cli.commands.dlq.view import counted

HOMES_SHOWN: Final = 10


def moved(tally: Tally, verb: str) -> str:
    """`120 dead letters redriven, confirmed: 100 to orders, 20 to invoices`."""
    queues = ", ".join(f"{times} to {label(queue)}" for queue, times in tally.gone.most_common())
    return f"{counted(tally.moved)} {verb}{f': {queues}' if queues else ''}"


def stays(tally: Tally) -> Iterator[str]:
    """Why the others stay; those that should have gone are listed."""
    if not tally.stays:
        return
    reasons = ", ".join(f"{times} {why}" for why, times in tally.stays.most_common())
    staying = tally.stays.total()
    yield f"{many(staying, 'stays', 'stay')}: {reasons}"
    for letter, why in tally.kept_back:
        yield f"  {name_of(letter)}: {why}"
    more = tally.failed - len(tally.kept_back)
    if more > 0:
        yield f"  … and {more} more"
    for queue, times in tally.homes.most_common(HOMES_SHOWN):
        yield f"  {times} came from {label(queue)}: to bring them back there, name it with --also"
    others = tally.stays[Why.ELSEWHERE] - sum(times for _, times in tally.homes.most_common(HOMES_SHOWN))
    if others:
        yield f"  {others} came from other queues"
    for queue, refusal in tally.refusals.items():
        yield f"  {label(queue)}: {refusal.problem}; {refusal.remedy}"


def gone_meanwhile(number: int) -> str:
    """About letters that were no longer there when they should have moved."""
    return f"{number} {'was' if number == 1 else 'were'} gone by then: somebody else moved or removed them"


def unseen(tally: Tally, aim: Aim) -> Iterator[str]:
    """What was there at the start and nothing was done about: gone meanwhile, or not looked at."""
    if tally.vanished:
        yield gone_meanwhile(tally.vanished)
    left = tally.present - tally.seen
    if left > 0:
        yield f"{left} of {tally.present} not looked at, and still in {aim.dead}"


def name_of(letter: Letter) -> str:
    if letter.action_id is None:
        return f"a message of {letter.size} bytes"
    return f"action {number(letter.action_id)}"


def interrupted(tally: Tally) -> int:
    """Report the interruption; the exit code."""
    report.problem(f"interrupted by {tally.stopped}: what was not finished is still in the dead-letter queue")
    return Exit.RETURNED
