"""A watch on a queue inside the broker, so that everybody is timed alike and from the outside.

A small process inside RabbitMQ asks the queue for its counts every few milliseconds and writes down when
the first message was handed out and when so many were left. A consumer cannot tell that it is watched and
does nothing for it; what one question costs (some 20 µs) costs everybody the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.rabbit import RabbitNode

DELIVERED: Final = "delivered"

# A queue answers questions about itself before it looks at its other work, so a busy one is no late one.
WATCH: Final = """
    {{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)),
    Write = fun(What) ->
        Line = io_lib:format("~p ~p~n", [What, os:system_time(microsecond)]),
        ok = file:write_file("{file}", Line, [append])
    end,
    Count = fun() ->
        [{{_, All}}, {{_, Held}}] = rabbit_amqqueue:info(Queue, [messages, messages_unacknowledged]),
        {{All, Held}}
    end,
    Begin = fun Wait() ->
        case Count() of
            {{{count}, 0}} -> timer:sleep(2), Wait();
            _ -> Write({delivered})
        end
    end,
    Follow = fun
        Wait([]) -> ok;
        Wait([Left | Later]) ->
            case Count() of
                {{All, _}} when All =< Left -> Write(Left), Wait(Later);
                _ -> timer:sleep(4), Wait([Left | Later])
            end
    end,
    spawn(fun() -> Begin(), Follow([{marks}]) end),
    watching.
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """When the queue reached a mark: `left` messages not acknowledged, or None at the first delivery."""

    left: int | None
    at: float


@dataclass(frozen=True, slots=True)
class BrokerWatch:
    """Reads what the watch has written so far."""

    file: Path

    def moments(self) -> list[Moment]:
        try:
            lines = self.file.read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        whole = (line.split() for line in lines if line.endswith("\n"))
        return [Moment(None if what == DELIVERED else int(what), int(at) / 1e6) for what, at in whole]


def watch(node: RabbitNode, queue: str, count: int, marks: tuple[int, ...]) -> BrokerWatch:
    """Watch a queue that holds `count` messages; marks are counts of messages left, falling."""
    file = node.folder / f"{queue}.marks"
    node.ctl(
        "eval",
        WATCH.format(
            queue=queue, file=file, count=count, delivered=DELIVERED, marks=", ".join(map(str, marks))
        ),
    )
    return BrokerWatch(file)
