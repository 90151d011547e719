"""Syncers that are classes: made and entered once, left after the last message (design §4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chronicle.errors import SettingError, SyncerError
from support.workers import PATIENCE, collect, deliveries, make, make_mailbox, working


class Diary:
    """A syncer that writes down what is done to it; `failing` names the moment it raises at."""

    failing = ""
    error: BaseException = OSError("no route")

    def __init__(self) -> None:
        self.lines: list[str] = []
        type(self).last = self
        self.note("made")

    last: Any = None

    def note(self, line: str) -> None:
        self.lines.append(line)
        if line == self.failing:
            raise self.error


class PlainInPlain(Diary):
    def __enter__(self) -> None:
        self.note("entered")

    def __exit__(self, *exc: object) -> None:
        self.note("left")

    def __call__(self, message: bytes) -> bool:
        self.note("called")
        return True


class PlainInAsync(Diary):
    def __enter__(self) -> None:
        self.note("entered")

    def __exit__(self, *exc: object) -> None:
        self.note("left")

    async def __call__(self, message: bytes) -> bool:
        self.note("called")
        return True


class AsyncInAsync(Diary):
    async def __aenter__(self) -> None:
        await asyncio.sleep(0)
        self.note("entered")

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.sleep(0)
        self.note("left")

    async def __call__(self, message: bytes) -> bool:
        self.note("called")
        return True


every_class = pytest.mark.parametrize("kind", [PlainInPlain, PlainInAsync, AsyncInAsync])


class TestContexts:
    @every_class
    def test_made_and_entered_once_before_the_first_and_left_after_the_last(self, kind: type[Diary]) -> None:
        with working(kind, 3) as (workers, mailbox):
            diary = kind.last
            assert diary.lines == ["made", "entered"]
            workers.submit(deliveries(5))
            collect(mailbox, 5)
        assert diary.lines == ["made", "entered", *["called"] * 5, "left"]

    @pytest.mark.parametrize("moment", ["made", "entered"])
    @every_class
    def test_one_that_does_not_start(self, kind: type[Diary], moment: str) -> None:
        failing = type(kind.__name__, (kind,), {"failing": moment})
        with pytest.raises(SyncerError, match="the syncer my:syncer did not start: OSError") as caught:
            make(failing, make_mailbox()).start()
        assert "OSError: no route" in caught.value.trace

    @pytest.mark.parametrize("moment", ["made", "entered"])
    @every_class
    def test_one_that_knows_which_setting_is_wrong(self, kind: type[Diary], moment: str) -> None:
        facts = {"failing": moment, "error": SettingError("CRM_URL is not set", "export CRM_URL")}
        with pytest.raises(SettingError) as caught:
            make(type(kind.__name__, (kind,), facts), make_mailbox()).start()
        assert caught.value.remedy == "export CRM_URL"

    @every_class
    def test_one_that_fails_to_leave_says_so(self, kind: type[Diary]) -> None:
        workers = make(type(kind.__name__, (kind,), {"failing": "left"}), make_mailbox())
        workers.start()
        with pytest.raises(OSError, match="no route"):
            workers.stop(PATIENCE)

    def test_an_async_context_needs_an_async_call(self) -> None:
        class Mixed:
            async def __aenter__(self) -> None: ...

            async def __aexit__(self, *exc: object) -> None: ...

            def __call__(self, message: bytes) -> bool:
                return True

        with pytest.raises(SyncerError) as caught:
            make(Mixed, make_mailbox()).start()
        assert caught.value.problem == "my:syncer is an async context manager with a plain __call__"
        assert caught.value.remedy == "make its __call__ async, or use __enter__ and __exit__"
