"""Redriving from a reader that moves messages in one step: nobody publishes, and nothing is there twice."""

from __future__ import annotations

from typing import Any

import pytest

from chronicle.core.deadletters.death import REASON, REDRIVES
from chronicle.core.deadletters.moves import RedrivePlan, Why
from chronicle.deadletters.redrive import Redrive
from chronicle.errors import BrokerRefused, ConnectionLost, NoSuchQueue
from chronicle.transports.batches import BATCH
from chronicle.transports.seam import Connector
from support.letters import Letters

NOWHERE = Connector("nowhere:", "q")  # whoever publishes fails: there is no such broker
PLAN = RedrivePlan(frozenset({"q"}))


def redrive(letters: Letters, plan: RedrivePlan = PLAN, **options: Any) -> Redrive:
    letters.open(lambda: False)
    return Redrive(letters, NOWHERE, plan, **options)


def ignore(_number: int) -> None: ...


def bodies(letters: Letters, queue: str = "q") -> list[bytes]:
    return [message.body for message in letters.elsewhere.get(queue, ())]


def test_they_go_in_one_step_in_order_and_without_the_headers_about_their_death() -> None:
    letters = Letters(2 * BATCH + 1, moves=True)
    tally = redrive(letters).run(ignore)
    assert (tally.moved, tally.seen, tally.failed, tally.vanished) == (2 * BATCH + 1, 2 * BATCH + 1, 0, 0)
    assert bodies(letters) == [b"%d" % number for number in range(2 * BATCH + 1)]
    assert letters.queue == []
    headers = letters.elsewhere["q"][0].headers
    assert (REASON in headers, headers[REDRIVES]) == (False, 1)


def test_a_limit_and_another_queue() -> None:
    letters = Letters(5, moves=True)
    tally = redrive(letters, RedrivePlan(frozenset({"q"}), to="repair"), limit=2).run(ignore)
    assert (tally.gone, len(letters.queue)) == ({"repair": 2}, 3)
    assert bodies(letters, "repair") == [b"0", b"1"]


def test_a_dry_run_moves_nothing() -> None:
    letters = Letters(3, moves=True)
    assert redrive(letters, dry_run=True).run(ignore).moved == 3
    assert (len(letters.queue), letters.elsewhere) == (3, {})


def test_what_somebody_else_took_meanwhile_is_neither_moved_nor_failed() -> None:
    letters = Letters(4, moves=True)
    letters.stolen = (b"1", b"2")
    tally = redrive(letters).run(ignore)
    assert (tally.moved, tally.vanished, tally.failed, tally.seen) == (2, 2, 0, 4)
    assert bodies(letters) == [b"0", b"3"]


def test_one_that_cannot_be_sent_stays_and_the_others_go() -> None:
    letters = Letters(3, moves=True)
    letters.unsendable = b"1"
    tally = redrive(letters).run(ignore)
    assert (tally.moved, tally.stays) == (2, {Why.UNSENDABLE: 1})
    assert [one.body for one in letters.queue] == [b"1"]


@pytest.mark.parametrize("refusal", [NoSuchQueue("there is none"), BrokerRefused("full")])
def test_a_queue_that_refuses_keeps_all_where_they_are(refusal: BrokerRefused) -> None:
    letters = Letters(BATCH + 1, moves=True)
    letters.trouble = refusal
    tally = redrive(letters).run(ignore)
    assert (tally.moved, tally.stays, tally.refusals) == (0, {Why.REFUSED: BATCH + 1}, {"q": refusal})
    assert len(letters.queue) == BATCH + 1


def test_a_move_in_doubt_ends_the_run_and_the_tally_says_what_is_certain() -> None:
    letters = Letters(2 * BATCH, moves=True)
    letters.cut_after = 1
    run = redrive(letters)
    with pytest.raises(ConnectionLost):
        run.run(ignore)
    assert run.tally.moved == len(bodies(letters)) == len(letters.queue) == BATCH
