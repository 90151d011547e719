"""docs/library.md: its examples run, type checkers understand them, and its list is `chronicle.__all__`."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import chronicle
from chronicle import Handle
from chronicle.engine.job import Exit
from chronicle.testing import MemoryBroker

HOME: Final = Path(__file__).parents[2]
PAGE: Final = (HOME / "docs" / "library.md").read_text()
BLOCKS: Final = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NAMED: Final = {
    found[1]: block for block in BLOCKS if (found := re.match(r"# (\w+)\.py\n", block)) is not None
}
ORDERS: Final = [
    {"id": 1, "customer": "eva"},
    {"id": 2, "customer": ""},
    {"id": 3, "customer": "ada", "total": -1.0},
    {"id": "4"},
]
# What a user of `mypy --strict` relies on; each line must have exactly this type.
TYPES: Final = """
from dataclasses import dataclass
from typing import Any, TypedDict

import chronicle
from chronicle import Ending, Message, QueueOptions, RetryPolicy, RoutingKey, Subscription, run, subscribe


@dataclass
class Order:
    id: int


class Line(TypedDict):
    id: int


class Model:
    @classmethod
    def model_validate(cls, value: Any) -> "Model":
        return cls()


reveal_type(RoutingKey("k", Order))  # RoutingKey[Order]
reveal_type(RoutingKey("k", Line))  # RoutingKey[Line]
reveal_type(RoutingKey("k", Model.model_validate))  # RoutingKey[Model]
reveal_type(RoutingKey("k", bytes))  # RoutingKey[bytes]
with subscribe("u", "q", RoutingKey("k", Order), QueueOptions(retry=RetryPolicy.NONE), prefetch=3) as orders:
    for message in orders:
        reveal_type(message)  # Message[Order]
        reveal_type(message.value.id)  # int
        reveal_type(message.attempts)  # int
reveal_type(run("u", "q", Order, concurrency=3, on_failure="retry:5"))  # Ending
run("u", "q", Order, concurency=3)  # error: Unexpected keyword argument
run("u", "q", Order, schema="xml")  # error: Argument "schema"
subscribe("u", "q", RoutingKey("k", Order), prefetch="3")  # error: Argument "prefetch"
"""


@pytest.fixture
def shop() -> Iterator[dict[str, dict[str, Any]]]:
    """The examples as the modules that they name."""
    made = {}
    for name, block in NAMED.items():
        module = sys.modules[name] = ModuleType(name)
        exec(block, module.__dict__)  # noqa: S102 - these lines are ours, and in the same repository
        made[name] = module.__dict__
    yield made
    for name in NAMED:
        del sys.modules[name]


def fed() -> MemoryBroker:
    broker = MemoryBroker()
    broker.publish("shipping", *ORDERS)
    return broker


def dead(broker: MemoryBroker) -> list[str]:
    return sorted(letter.reason for letter in broker.dead_letters("shipping"))


def bounded(module: dict[str, Any]) -> None:
    """The example with an end: the page's own has none, as a service has none."""
    whole = module["subscribe"]
    module["subscribe"] = lambda *args, **options: whole(*args, **options, until_empty=True)


def test_the_loop_of_the_page(shop: dict[str, dict[str, Any]]) -> None:
    broker = fed()
    bounded(shop["shop"])
    shop["shop"]["work"](broker)
    assert dead(broker) == [
        "no customer",
        "the body is no Order: .id is not a whole number",
        "the program nacked it",
    ]


def test_the_async_loop_of_the_page(shop: dict[str, dict[str, Any]]) -> None:
    broker = fed()
    bounded(shop["shop_async"])
    asyncio.run(shop["shop_async"]["work"](broker))
    assert dead(broker) == ["it does not fit", "the body is no Order: .id is not a whole number"]


def test_the_runs_of_the_page(shop: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    broker = MemoryBroker()
    broker.publish("shipping", *ORDERS[:2])
    ending = shop["shop_run"]["nightly"](broker)
    assert (ending.code, ending.counters.ack, ending.counters.dead_lettered) == (Exit.DONE, 1, 1)

    async def beside() -> None:
        handle, broker = Handle(), fed()
        task = asyncio.create_task(shop["shop_run"]["beside"](broker, handle))
        while broker.waiting("shipping"):
            await asyncio.sleep(0.01)
        handle.stop()
        assert (await task).counters.ack == len(ORDERS)

    asyncio.run(beside())
    assert "consumer.stopped stopped: asked to stop" in capsys.readouterr().out


def test_the_test_of_the_page() -> None:
    (block,) = [block for block in BLOCKS if "def test_" in block]
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102
    names["test_an_order_that_fails_five_times_is_dead_lettered"]()


def test_the_page_lists_every_public_name() -> None:
    table = PAGE[PAGE.index("## Every name") :]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == set(chronicle.__all__)
    assert all(hasattr(chronicle, name) for name in chronicle.__all__)
    assert set(dir(chronicle)) == set(chronicle.__all__)


def test_strict_users_get_full_types(tmp_path: Path) -> None:
    """R-003-36: what a key is tied to is known to the loop; a wrong option is found before anything runs."""
    for name, block in {**NAMED, "types_of_it": TYPES}.items():
        (tmp_path / f"{name}.py").write_text(block)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {HOME / 'src'}\n")
    files = [f"{name}.py" for name in (*NAMED, "types_of_it")]
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        if found := re.match(r"(\w+)\.py:(\d+): (.*)", line):
            assert found[1] == "types_of_it", line
            said.setdefault(int(found[2]), []).append(found[3])
    for number, line in enumerate(TYPES.splitlines(), 1):
        wanted = line.partition("  # ")[2]
        answers = said.pop(number, [])
        if wanted.startswith("error: "):
            assert any(wanted in answer for answer in answers), (line, answers)
        elif wanted:
            (answer,) = answers
            # How much of a name is shown differs between versions of mypy.
            revealed = re.sub(r"chronicle\.[\w.]*\.|types_of_it\.|builtins\.", "", answer.split('"')[1])
            revealed = re.sub(r"TypedDict\((\w+),.*\)", r"\1", revealed)
            assert revealed == wanted, (line, answer)
    assert not {number: answers for number, answers in said.items() if any("error" in one for one in answers)}


def test_importing_chronicle_is_light() -> None:
    """A syncer's module imports it: nothing of `run` and `subscribe` may be paid for there."""
    program = "import chronicle, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {
        "asyncio",
        "pika",
        "sqlite3",
        "redis",
        "confluent_kafka",
        "orjson",
        "threading",
        "chronicle.engine",
    }
    assert not loaded & heavy
    assert not any(name.startswith("chronicle.library") for name in loaded)
