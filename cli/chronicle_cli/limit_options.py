"""The options that protect the other side: how long, how often, and whether at all just now."""

from __future__ import annotations

import click

from chronicle.engine.job import Limits
from chronicle_cli.help import Group, option, stack
from chronicle_cli.params import DURATION, NATURAL, RATE

time_limit = option(
    Group.LIMITS, "--time-limit", type=DURATION, default="0", metavar="DURATION",
    envvar="CHRONICLE_TIME_LIMIT",
    help="How long a syncer may take for one message, for example 60s. An async one is cancelled and the "
    "message has failed. A sync one cannot be interrupted: the process ends with code 1, the log shows where "
    "it was, and the message goes back. 0: no limit.",
)  # fmt: skip
rate = option(
    Group.LIMITS, "--rate", type=RATE, metavar="RATE", envvar="CHRONICLE_RATE",
    help="How many messages may begin, for example 10/s, 600/min or 1000/h, spread evenly.  "
    "[default: as many as there are]",
)  # fmt: skip
brake = option(
    Group.LIMITS, "--brake", type=NATURAL, default=10, metavar="N", envvar="CHRONICLE_BRAKE",
    help="When so many different messages in a row fail alike, or ask for another try, intake pauses: the "
    "other side seems to be down. One message is tried now and then until one succeeds; none of these tries "
    "counts. 0: never.",
)  # fmt: skip
consuming = stack(time_limit, rate, brake)
replaying = stack(time_limit, rate)


def limits_of(ctx: click.Context) -> Limits:
    """What protects the other side; a command without the brake has none."""
    values = ctx.params
    return Limits(values["time_limit"], values["rate"] or float("inf"), values.get("brake", 0))
