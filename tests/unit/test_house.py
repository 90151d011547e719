"""The arrows of docs/architecture.md: who may import whom, and who may start threads.

Rule 1: every import counts, wherever in a file it stands, also those for type checkers only.
Rule 2: what is not allowed here is forbidden; a new room needs a line in `ROOMS` and one in the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from chronicle.transports.catalog import brokers

HOME: Final = Path(__file__).parents[2]
SOURCES: Final = ("src", "cli", "syncers")
PYTHON: Final = (*SOURCES, "tests", "docs", "benchmarks")
LONGEST: Final = 400
NOUNS: Final = frozenset({"folding", "testing"})  # case folding; the name people import
RULE: Final = re.compile(r"\b(?:R-00[0-4]-\d+|D-\d+|RB\d+|[FKSZ]\d{1,2}|[GHX]\d|[KS]-[a-f])\b")

SINGLE: Final = frozenset({"errors", "files"})  # rooms of one file
LIBRARY: Final = SINGLE | {
    "core", "proca", "telemetry", "transports", "workers", "engine", "captures", "deadletters", "settings",
    "library",
}  # fmt: skip
FRONT: Final = frozenset({"chronicle", "testing", "topology"})
ROOMS: Final = {
    "errors": frozenset[str](),
    "files": frozenset({"errors"}),
    "core": frozenset({"errors"}),
    "proca": frozenset({"errors", "files"}),
    "telemetry": frozenset({"errors", "core"}),
    "transports": frozenset({"errors", "files", "core"}),
    "workers": frozenset({"errors", "core", "telemetry"}),
    "engine": frozenset({"errors", "core", "telemetry", "transports", "workers"}),
    "captures": frozenset({"errors", "files", "core", "telemetry", "transports", "engine"}),
    "deadletters": frozenset({"errors", "core", "transports", "engine"}),
    "settings": frozenset({"errors", "core", "proca", "telemetry", "transports", "workers"}),
    "library": frozenset(
        {"errors", "core", "telemetry", "transports", "workers", "engine", "settings", "topology"}
    ),
    "testing": LIBRARY | {"chronicle"},
    "topology": LIBRARY,
    "chronicle": LIBRARY,
    "cli": LIBRARY | FRONT,
    "syncers": frozenset({"chronicle", "errors", "files", "core"}),
}
EXTRA: Final = {"chronicle/core/pipeline.py": frozenset({"proca"})}

# A broker's own folder: what is not in it asks the broker's record, by way of the catalog.
BROKERS: Final = frozenset(
    init.parent.name for init in (HOME / "src" / "chronicle" / "transports").glob("*/__init__.py")
)
SCHEMES: Final = frozenset(scheme for broker in brokers() for scheme in broker.schemes)
# A literal that is one of these names, speaks of one in a sentence, or begins a URL with one.
BROKER_NAME: Final = re.compile(
    rf"(?:{'|'.join(sorted(BROKERS | SCHEMES))})|.*\b(?:{'|'.join(broker.title for broker in brokers())})\b.*"
    rf"|.*\b(?:{'|'.join(map(re.escape, sorted(SCHEMES)))}):.*",
    re.IGNORECASE | re.DOTALL,
)
# Help and examples are for people, and proca's live broker has an address.
MAY_NAME_BROKERS: Final = frozenset({"EXAMPLES", "PROCA", "help", "examples"})

CLIENTS: Final = frozenset({"pika", "confluent_kafka", "redis"})
THREADS: Final = frozenset({"_thread", "asyncio", "concurrent", "multiprocessing", "signal", "threading"})
THREAD_ROOMS: Final = frozenset({"workers", "engine", "library", "cli"})
# Foreign threads call these rooms, so they may guard what they share; they may not start a thread.
GUARDED_ROOMS: Final = frozenset({"telemetry", "syncers"})
# But for four: one waits for a terminal's reader so that nobody else does; one polls a client whose
# callbacks wait for syncers, which the pump must not, and shares a lock with it; one closes a client that may
# not answer. And one has a lock only: tests publish to the broker in memory from any thread.
STARTS_A_THREAD: Final = frozenset(
    {
        "chronicle/telemetry/way_out.py",
        "chronicle/transports/memory_broker.py",
        "chronicle/transports/kafka/client.py",
        "chronicle/transports/kafka/assignment.py",
        "chronicle/transports/kafka/group_offsets.py",
    }
)
GUARDS: Final = frozenset({"Condition", "Lock", "RLock", "local"})
# They read queues through a Reader, so that every transport may do it in its own way.
READING_ROOMS: Final = frozenset({"captures", "deadletters"})


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: `module` is absolute, `name` is empty for a plain import."""

    line: int
    module: str
    name: str = ""


def offences(home: Path) -> list[str]:
    """Everything in this tree that breaks a rule of the house, one sentence each."""
    found = [offence for file in python_files(home, SOURCES) for offence in source_offences(home, file)]
    for file in python_files(home, SOURCES):
        if file.stem.endswith("ing") and file.stem not in NOUNS:
            found.append(f"{file.relative_to(home)} is named after an activity, not after a thing")
    for file in python_files(home, PYTHON):
        length = len(file.read_text().splitlines())
        if length > LONGEST:
            found.append(f"{file.relative_to(home)} has {length} lines, more than {LONGEST}")
    return found


def python_files(home: Path, folders: tuple[str, ...]) -> list[Path]:
    found = (file for folder in folders for file in (home / folder).rglob("*.py"))
    # A folder whose name begins with a dot holds what was installed, not what was written.
    return sorted(file for file in found if not any(p.startswith(".") for p in file.relative_to(home).parts))


def source_offences(home: Path, file: Path) -> Iterator[str]:
    where = file.relative_to(home)
    text = file.read_text()
    module = Path(*where.parts[1:])
    room = room_of_file(module)
    if not room:
        yield f"{where} stands in no room of docs/architecture.md"
        return
    for number, line in enumerate(text.splitlines(), 1):
        if "TODO" in line or "FIXME" in line:
            yield f"{where}:{number} is unfinished"
        if room in READING_ROOMS and "open_transport" in line:
            yield f"{where}:{number} is in {room} and opens a transport: use open_reader"
    tree = ast.parse(text)
    for entry in imports(tree, module):
        yield from (f"{where}:{entry.line} {why}" for why in import_offences(entry, module, room))
    if room == "cli":
        for number, literal in literals(tree):
            if BROKER_NAME.fullmatch(literal):
                yield f"{where}:{number} names a broker; ask its record"
    if room in GUARDED_ROOMS:
        for number, name in uses_of_threading(tree):
            if name not in GUARDS:
                yield f"{where}:{number} uses threading.{name}"


def import_offences(entry: Import, module: Path, room: str) -> Iterator[str]:
    top = entry.module.partition(".")[0]
    target = room_of_import(entry)
    allowed = ROOMS[room] | {room} | EXTRA.get(module.as_posix(), frozenset())
    if target and target not in allowed:
        yield f"is in {room} and imports from {target}"
    broker = broker_of_import(entry)
    if broker and module.parts[:3] != ("chronicle", "transports", broker):
        yield f"imports from the folder of the broker {broker}"
    if top in CLIENTS and room != "transports":
        yield f"imports {top} outside transports"
    if top == "sqlite3" and room != "syncers" and not is_local_transport(module):
        yield "imports sqlite3 outside the local transport and the syncers"
    if top in THREADS and room not in THREAD_ROOMS and module.as_posix() not in STARTS_A_THREAD:
        guards_only = top == "threading" and room in GUARDED_ROOMS and entry.name in {"", *GUARDS}
        if not guards_only:
            yield f"is in {room} and imports {top}"


def room_of_file(module: Path) -> str:
    """The room a file stands in; empty if there is none for it."""
    top, second, *_ = *module.with_suffix("").parts, ""
    room = {"chronicle_cli": "cli", "chronicle_syncers": "syncers"}.get(top, second)
    return "chronicle" if room == "__init__" else room if room in ROOMS else ""


def room_of_import(entry: Import) -> str:
    """The room an import leads to; empty for somebody else's."""
    top, second, *_ = *entry.module.split("."), entry.name, ""
    if top == "chronicle":
        return second if second in ROOMS else "chronicle"
    return {"chronicle_cli": "cli", "chronicle_syncers": "syncers"}.get(top, "")


def broker_of_import(entry: Import) -> str:
    """The broker whose own folder an import leads to; empty for none."""
    first, second, third, *_ = *entry.module.split("."), entry.name, "", ""
    return third if (first, second) == ("chronicle", "transports") and third in BROKERS else ""


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts in a file, but for docstrings and what may name a broker."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.lineno, tree.value
    for child in ast.iter_child_nodes(tree):
        match child:
            case ast.Expr(value=ast.Constant()):
                continue  # a docstring
            case ast.keyword(arg=name) | ast.Assign(targets=[ast.Name(id=name)]):
                pass
            case ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                name = ""
        if name not in MAY_NAME_BROKERS:
            yield from literals(child)


def is_local_transport(module: Path) -> bool:
    return module.parts[:3] in {("chronicle", "transports", "local"), ("chronicle", "transports", "local.py")}


def uses_of_threading(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "threading"
        ):
            yield node.lineno, node.attr


def imports(tree: ast.AST, module: Path) -> Iterator[Import]:
    package = module.parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the file's own package, and each further one a package above it.
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*base, *(node.module or "").split("."))).strip(".")
            for alias in node.names:
                yield Import(node.lineno, source, alias.name)


def test_the_house_is_in_order() -> None:
    """Design §3: the arrows between the rooms, no endless files, nothing unfinished."""
    assert offences(HOME) == []


def test_the_page_names_every_room() -> None:
    page = (HOME / "docs" / "architecture.md").read_text()
    for room in sorted(LIBRARY):
        name = f"{room}.py" if room in SINGLE else f"{room}/"
        assert f"`chronicle/{name}`" in page


def unexplained_rules(home: Path) -> list[str]:
    """Every rule that is cited somewhere and has no line of its own in docs/rules.md."""
    page = home / "docs" / "rules.md"
    explained = set(re.findall(r"^- \*\*(\S+)\*\* \S", page.read_text(), re.MULTILINE))
    pages = (file for folder in PYTHON for file in (home / folder).glob("*.md") if file != page)
    return sorted(
        f"{file.relative_to(home)} cites {rule}"
        for file in (*python_files(home, PYTHON), *pages)
        for rule in set(RULE.findall(file.read_text())) - explained
    )


def test_every_cited_rule_is_explained() -> None:
    assert unexplained_rules(HOME) == []


def test_a_rule_without_a_line_is_reported(tmp_path: Path) -> None:
    """Negative control: a mention in passing, here of D-2, is not a line of its own."""
    for folder in PYTHON:
        (tmp_path / folder).mkdir()
    (tmp_path / "docs" / "rules.md").write_text("- **D-1** What a failed message gets, see D-2.\n")
    (tmp_path / "docs" / "page.md").write_text("As D-1 and RB1 say.\n")
    (tmp_path / "src" / "a.py").write_text("# D-1, D-2\n")
    assert unexplained_rules(tmp_path) == ["docs/page.md cites RB1", "src/a.py cites D-2"]


OFFENDERS: Final = [
    (
        "src/chronicle/core/a.py",
        "from chronicle.transports import seam\n",
        "is in core and imports from transports",
    ),
    ("src/chronicle/core/a.py", "from chronicle import engine\n", "is in core and imports from engine"),
    ("src/chronicle/core/a.py", "from chronicle import Retry\n", "is in core and imports from chronicle"),
    ("src/chronicle/core/a.py", "import chronicle.proca.schema\n", "is in core and imports from proca"),
    ("src/chronicle/core/a.py", "from ..engine import runner\n", "is in core and imports from engine"),
    ("src/chronicle/errors.py", "from .core import delivery\n", "is in errors and imports from core"),
    (
        "src/chronicle/proca/a.py",
        "def f():\n    import chronicle.core\n",
        "is in proca and imports from core",
    ),
    ("src/chronicle/telemetry/a.py", "import pika\n", "imports pika outside transports"),
    ("src/chronicle/engine/a.py", "from redis.client import Redis\n", "imports redis outside transports"),
    ("cli/chronicle_cli/a.py", "import confluent_kafka as k\n", "imports confluent_kafka outside transports"),
    ("src/chronicle/engine/a.py", "import sqlite3\n", "imports sqlite3 outside"),
    ("src/chronicle/transports/memory.py", "import sqlite3\n", "imports sqlite3 outside"),
    (
        "src/chronicle/transports/rabbitmq/poller.py",
        "import threading\n",
        "is in transports and imports threading",
    ),
    ("src/chronicle/core/a.py", "import asyncio\n", "is in core and imports asyncio"),
    (
        "src/chronicle/telemetry/a.py",
        "from threading import Thread\n",
        "is in telemetry and imports threading",
    ),
    ("syncers/chronicle_syncers/a.py", "import threading\nthreading.Thread()\n", "uses threading.Thread"),
    ("syncers/chronicle_syncers/a.py", "import signal\n", "is in syncers and imports signal"),
    (
        "syncers/chronicle_syncers/a.py",
        "from chronicle_cli import main\n",
        "is in syncers and imports from cli",
    ),
    ("syncers/chronicle_syncers/a.py", "from chronicle.engine import runner\n", "imports from engine"),
    (
        "src/chronicle/engine/a.py",
        "import chronicle_syncers.sql\n",
        "is in engine and imports from syncers",
    ),
    ("cli/chronicle_cli/a.py", "from chronicle_syncers import sql\n", "is in cli and imports from syncers"),
    (
        "cli/chronicle_cli/a.py",
        "def f():\n    from chronicle.transports.rabbitmq import address\n",
        "imports from the folder of the broker rabbitmq",
    ),
    ("src/chronicle/engine/a.py", "from chronicle.transports import local\n", "of the broker local"),
    ("src/chronicle/transports/memory.py", "from .local.store import Store\n", "of the broker local"),
    ("src/chronicle/transports/rabbitmq/a.py", "import chronicle.transports.local.store\n", "broker local"),
    ("cli/chronicle_cli/a.py", "if scheme == 'local':\n    pass\n", "names a broker"),
    ("cli/chronicle_cli/a.py", "f(url.startswith('amqps://'))\n", "names a broker"),
    ("cli/chronicle_cli/a.py", "MARKED: str = f'{x} and RabbitMQ marks it'\n", "names a broker"),
    ("cli/chronicle_cli/a.py", "why = 'no effect on the embedded queue'\n", "names a broker"),
    (
        "src/chronicle/captures/a.py",
        "from chronicle.transports.catalog import open_transport\n",
        "is in captures and opens a transport",
    ),
    (
        "src/chronicle/deadletters/a.py",
        "def f(catalog):\n    return catalog.open_transport\n",
        "is in deadletters and opens a transport",
    ),
    ("src/chronicle/engine/telling.py", "", "is named after an activity"),
    ("src/chronicle/stray.py", "", "stands in no room"),
    ("src/chronicle/core/a.py", "# TODO later\n", "is unfinished"),
    ("tests/unit/test_a.py", "pass\n" * 401, "has 401 lines"),
]


@pytest.mark.parametrize(("where", "text", "why"), OFFENDERS)
def test_an_offence_is_reported(tmp_path: Path, where: str, text: str, why: str) -> None:
    """Negative control: a checker that reports nothing proves nothing."""
    file = tmp_path / where
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (offence,) = offences(tmp_path)
    assert offence.startswith(where)
    assert why in offence


INNOCENTS: Final = [
    ("src/chronicle/core/pipeline.py", "from chronicle.proca import schema\n"),
    ("src/chronicle/transports/rabbitmq/wire.py", "import pika\nfrom ..seam import Transport\n"),
    ("src/chronicle/transports/local.py", "import sqlite3\n"),
    ("src/chronicle/transports/local/store.py", "import sqlite3\n"),
    ("src/chronicle/telemetry/a.py", "from threading import RLock\n"),
    ("syncers/chronicle_syncers/a.py", "import threading\nthreading.Lock()\nfrom chronicle import Retry\n"),
    ("src/chronicle/transports/rabbitmq/a.py", "from .address import address_of\n"),
    ("cli/chronicle_cli/a.py", "from chronicle.transports import catalog, memory\n"),
    (
        "cli/chronicle_cli/a.py",
        "def f():\n    'On RabbitMQ.'\n\nEXAMPLES: str = 'amqp://h/'\nf(help='RabbitMQ', a='a local disk')\n",
    ),
    ("cli/chronicle_cli/a.py", "import signal\nfrom chronicle.engine import runner\n"),
]


@pytest.mark.parametrize(("where", "text"), INNOCENTS)
def test_what_the_page_allows_is_not_reported(tmp_path: Path, where: str, text: str) -> None:
    file = tmp_path / where
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert offences(tmp_path) == []
