"""The Python examples of the README and of the docs work as they stand there."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError

import pytest

HOME = Path(__file__).parents[2]
MESSAGES = [
    sample
    for sample in sorted((HOME / "tests/samples").glob("*.json"))
    if str(json.loads(sample.read_text()).get("schema")).endswith(":2")
]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (HOME / page).read_text(), re.MULTILINE | re.DOTALL)


def run_tests(page: str) -> int:
    """Run the test functions among the examples of a page; how many there were."""
    ran = 0
    for block in blocks(page):
        names: dict[str, Any] = {}
        if "def test_" in block:
            exec(block, names)  # noqa: S102 - these lines are ours, and in the same repository
            for test in [value for name, value in names.items() if name.startswith("test_")]:
                test()
                ran += 1
    return ran


@pytest.fixture
def my_crm() -> Iterator[None]:
    """The first example of the README, as the module that the others import."""
    module = ModuleType("my_crm")
    exec(blocks("README.md")[0], module.__dict__)  # noqa: S102
    module.__dict__["urlopen"] = lambda *_, **__: (HOME / "README.md").open()
    sys.modules["my_crm"] = module
    yield
    del sys.modules["my_crm"]


@pytest.mark.usefixtures("my_crm")
def test_the_test_of_the_readme() -> None:
    assert run_tests("README.md") == 1


@pytest.mark.usefixtures("my_crm")
@pytest.mark.parametrize("sample", MESSAGES, ids=lambda sample: sample.stem)
def test_the_syncer_of_the_readme_takes_every_message(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions, events, and a network that fails: it answers True or False, and never ends the process."""
    import my_crm  # type: ignore[import-not-found]

    message = json.loads(sample.read_text())
    assert my_crm.sync(message) in (True, False)

    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setitem(my_crm.__dict__, "urlopen", unreachable)
    assert my_crm.sync(message) in (True, False)


def test_the_tests_of_the_syncers_page() -> None:
    assert run_tests("docs/syncers.md") == 1


@pytest.mark.parametrize("page", ["README.md", "docs/syncers.md", "docs/messages.md", "docs/library.md"])
def test_every_example_is_python(page: str) -> None:
    for block in blocks(page):
        compile(block, page, "exec")
