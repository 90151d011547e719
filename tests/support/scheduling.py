"""Which tests run in one process, one after the other: those of a file with something for all of them.

All other tests go to whoever is free. (The groups of pytest-xdist's own `loadgroup` do nothing with
pytest 9.2.)
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

FOR_ALL = 'scope="module"'


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByFixture(config, log)


class ByFixture(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _shares(self.config.rootpath / file) else nodeid


@cache
def _shares(file: Path) -> bool:
    return FOR_ALL in file.read_text()
