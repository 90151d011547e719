"""What a stranger's message does to `chronicle dlq`: no letter steers it, blocks it or wears it out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chronicle.transports.seam import Outgoing
from support import raw_amqp
from support.cli import PROGRAM, run
from support.deadhouse import CANARY, DeadHouse, action, at_rabbit
from support.fixtures import Broker
from support.queues import Queues
from support.waiting import wait_for

FULL = raw_amqp.short(b"h") + b"S" + raw_amqp.long(b"x" * 131_030)
GROWING = raw_amqp.short(b"h") + b"A" + raw_amqp.long(b"b\x01" * 60_000)  # each number is sent as eight bytes

WEIGHED = f"""
import atexit, resource, sys
atexit.register(lambda: print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr))
{PROGRAM}
"""


@pytest.fixture(params=["classic", "quorum"])
def house(request: pytest.FixtureRequest, rabbit: Broker, tmp_path: Path) -> DeadHouse:
    return at_rabbit(rabbit.queues, tmp_path, request.param)


def queues_of(house: DeadHouse) -> Queues:
    assert house.queues is not None
    return house.queues


def reject(house: DeadHouse, *ids: int, **headers: object) -> None:
    """Messages of a producer that the broker itself dead-letters."""
    queues = queues_of(house)
    queues.publish(house.queue, *map(action, ids), headers=headers)
    with queues.channel() as channel:
        for _ in ids:
            method, _, _ = channel.basic_get(house.queue)
            assert method is not None
            channel.basic_nack(method.delivery_tag, requeue=False)
    wait_for(lambda: queues.depth(house.dlq) >= len(ids), 60, "the dead letters")


def test_3_a_header_does_not_steer_a_redrive(house: DeadHouse) -> None:
    """The broker says where they died; a producer's word about that is worth nothing."""
    victim = queues_of(house).declare(f"{house.queue}.victim")
    reject(house, 1, 2, **{"x-chronicle-queue": victim})
    said = house.dlq_command("redrive")
    assert (said.code, said.out) == (0, f"2 dead letters redriven, confirmed: 2 to {house.queue}\n"), said.err
    assert house.depth(victim) == 0


@pytest.mark.parametrize("how", ["our header", "x-death"])
def test_3_another_home_needs_consent(house: DeadHouse, how: str) -> None:
    """Counted and named; `--also` brings them there, `--to` takes all of them to one queue."""
    victim = queues_of(house).declare(f"{house.queue}.victim")
    death = {"queue": victim, "reason": "rejected", "count": 1}
    forged = {"x-chronicle-queue": victim} if how == "our header" else {"x-death": [death]}
    house.die(1)
    house.put(house.dlq, [Outgoing(action(number), forged) for number in (2, 3)])
    dry = house.dlq_command("redrive", "--dry-run")
    said = house.dlq_command("redrive")
    for one in (dry, said):
        assert one.code == 1
        assert "2 stay: 2 from a queue that was not named" in one.out
        assert f"2 came from {victim}: to bring them back there, name it with --also" in one.out
    assert house.depth(victim) == 0
    assert house.ids(house.queue) == [1]
    assert house.dlq_command("redrive", "--also", victim, "--limit", "1").code == 0
    assert house.ids(victim) == [2]
    assert house.dlq_command("redrive", "--also", victim, "--to", house.queue).code == 2
    assert house.dlq_command("redrive", "--to", house.queue).code == 0
    assert house.ids(house.queue) == [3]


def test_4_a_name_that_is_no_queue_blocks_nobody(house: DeadHouse) -> None:
    house.die(1, x_chronicle_queue="q" * 300)
    house.die(2, x_chronicle_queue="\x1b[2J\r\n")
    house.die(*range(3, 23))
    said = house.dlq_command("redrive")
    assert said.code == 1
    assert said.out.startswith(f"20 dead letters redriven, confirmed: 20 to {house.queue}\n")
    assert house.ids(house.queue) == list(range(3, 23))
    assert sorted(house.ids(house.dlq)) == [1, 2]


def test_4_headers_that_no_client_can_send_block_nobody(house: DeadHouse) -> None:
    """They fill a frame, and a redrive would add one: that letter stays, however often it is looked at."""
    raw_amqp.publish(queues_of(house), house.dlq, action(1), FULL)
    raw_amqp.publish(queues_of(house), house.dlq, action(12), GROWING)
    house.die(*range(2, 12))
    for _ in range(4):  # a quorum queue wears it out
        listed = house.dlq_command("list")
        assert listed.code == 0, listed.err
    if house.kind == "quorum":
        assert "1 of these messages cannot be republished" in listed.err
    said = house.dlq_command("redrive")
    assert said.code == 1
    assert said.out.startswith(f"10 dead letters redriven, confirmed: 10 to {house.queue}\n")
    assert "action 1: with a header or of a size that the broker does not accept" in said.out
    assert "action 12: with a header or of a size that the broker does not accept" in said.out
    assert sorted(house.ids(house.queue)) == list(range(2, 12))
    (house.folder / "crm.py").write_text("def never(message):\n    return False\n")
    tried = house.dlq_command("redrive", "--verify", "crm:never", "--yes")
    assert tried.code == 1, tried.err
    assert house.depth(house.dlq) == 2
    assert house.dlq_command("drop", "--yes").code == 0
    assert house.depth(house.dlq) == 0


@pytest.mark.parametrize(
    "command",
    [("list",), ("show",), ("export", "x.jsonl"), ("redrive", "--dry-run"), ("drop", "--yes"), ("redrive",)],
    ids=" ".join,
)
def test_8_a_large_body_is_not_parsed(house: DeadHouse, command: tuple[str, ...]) -> None:
    """`--max-body` holds here too: the letter has no id, and costs little more memory than its bytes."""
    if house.kind == "quorum":
        pytest.skip("the same on every kind of queue")
    body = b"[" + b"{}," * 5_000_000 + b"{}]"  # 15 MB, of which a parser makes 400 MB
    house.die(7)
    usual = peak(house, "list")
    house.put(house.dlq, [Outgoing(body, {"x-chronicle-reason": f"a stranger's word about {CANARY}"})])
    assert peak(house, *command, "--max-body", "1MiB") < usual + 10 * len(body)


def peak(house: DeadHouse, *command: str) -> int:
    """The most memory that this command took, in bytes; it must succeed and show nothing personal."""
    said = run("dlq", *command, *house.where, cwd=house.folder, env=house.env, program=WEIGHED)
    assert said.code == 0, said.err
    assert CANARY not in said.out + said.err
    (found,) = re.findall(r"^peak (\d+)$", said.err, re.MULTILINE)
    return int(found) * 1024


def test_8_what_is_not_parsed_does_not_match_by_id(house: DeadHouse) -> None:
    house.put(house.dlq, [Outgoing(action(1).ljust(2_000))])
    house.die(1)
    assert house.dlq_command("redrive", "--match", "id=1", "--max-body", "1KiB").code == 0
    assert len(house.take(house.queue)) == 1
    assert house.dlq_command("redrive", "--match", "id=1").code == 0
    assert len(house.take(house.queue)) == 1
