"""`chronicle.testing`: people's own tests run their syncer through the real thing (design §4)."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb
from typing import Any

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Asked, Failed, Fatal, Invalid, Synced
from chronicle.errors import DeadLetter, Drop, Retry, SyncerError
from chronicle.testing import DeadLettered, run_syncer
from support.proca_messages import CANARY, action
from support.samples import FOLDER, message


def yes(message: Any) -> bool:
    return True


async def yes_async(message: Any) -> bool:
    return True


class Crm:
    """Counts how often it was made, entered and left."""

    made = entered = left = 0

    def __init__(self) -> None:
        Crm.made += 1

    def __enter__(self) -> None:
        Crm.entered += 1

    def __exit__(self, *exc: object) -> None:
        Crm.left += 1

    def __call__(self, message: Any) -> bool:
        return True


@pytest.mark.parametrize("syncer", [yes, yes_async, Crm, lambda message, delivery: True])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_every_kind_of_syncer(syncer: Any, concurrency: int) -> None:
    result = run_syncer(syncer, [action(n) for n in range(10)], concurrency=concurrency)
    assert result.ok
    assert (result.acked, result.outcomes) == (10, (Synced(),) * 10)


def test_a_class_is_made_and_entered_once_and_left() -> None:
    Crm.made = Crm.entered = Crm.left = 0
    assert run_syncer(Crm, [action(), action()]).ok
    assert (Crm.made, Crm.entered, Crm.left) == (1, 1, 1)


def test_R_004_30_a_failing_message_gets_its_second_try_and_ends_in_the_dead_letters() -> None:
    tries: list[bool] = []

    def no(message: Any, delivery: Delivery) -> bool:
        tries.append(delivery.redelivered)
        return False

    result = run_syncer(no, [b'{"a": 1}'], schema="json")
    assert tries == [False, True]
    assert result.dead_letters == (DeadLettered(b'{"a": 1}', "the syncer returned False"),)
    assert (result.requeued, result.acked, result.ok) == (1, 0, False)
    assert result.outcomes == (Failed(), Failed())


def test_R_004_16_bad_input_never_reaches_the_syncer() -> None:
    def never(message: Any) -> bool:
        raise AssertionError

    result = run_syncer(never, [b"not JSON", {"schema": "proca:action:1"}])
    assert len(result.dead_letters) == 2
    assert all(isinstance(outcome, Invalid) for outcome in result.outcomes)


def test_D_16_verdicts_of_the_syncers_own() -> None:
    def asks(message: Any, delivery: Delivery) -> bool:
        if message["actionId"] == 1:
            raise Drop("test data")
        if message["actionId"] == 2:
            raise DeadLetter("no such list")
        if not delivery.redelivered:
            raise Retry(after=0.001)
        return True

    result = run_syncer(asks, [action(1), action(2), action(3)])
    assert (result.dropped, len(result.dead_letters), result.requeued, result.acked) == (1, 1, 1, 1)
    assert sum(isinstance(outcome, Asked) for outcome in result.outcomes) == 3


def test_D_17_what_would_end_the_process_is_told_and_not_raised() -> None:
    def breaks(message: Any) -> bool:
        raise ValueError(message["contact"]["email"])

    result = run_syncer(breaks, [action()])
    assert result.fatal.startswith("the syncer raised ValueError")
    assert CANARY not in result.fatal
    assert not result.ok
    assert isinstance(result.outcomes[0], Fatal)


def test_the_words_are_those_of_consume() -> None:
    def breaks(message: Any) -> bool:
        raise ValueError

    result = run_syncer(breaks, [action()], on_exception="fail", on_failure="dead-letter")
    assert (len(result.dead_letters), result.requeued, result.fatal) == (1, 0, "")
    assert len(run_syncer(yes, [b"?"], on_invalid="dead-letter").outcomes) == 1
    with pytest.raises(ValueError, match="sometimes"):
        run_syncer(yes, [], on_failure="sometimes")


def test_R_003_22_counted_tries_are_spelled_as_on_the_command_line() -> None:
    result = run_syncer(lambda message: False, [action()], on_failure="retry:3")
    assert (result.requeued, len(result.outcomes), len(result.dead_letters)) == (2, 3, 1)


def test_R_004_24_with_keys_the_syncer_sees_the_person() -> None:
    seen: list[Any] = []

    def sees(message: Any) -> bool:
        seen.append(message["contact"])
        return True

    keys = (FOLDER / "keys.json").read_text()
    assert run_syncer(sees, [message("action-encrypted.json")], keys=keys).ok
    opened = message("expected-decrypted.json")["action-encrypted.json"]
    assert seen[0].items() >= opened.items()


def test_keys_may_be_a_path(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.touch(mode=0o600)
    file.write_bytes((FOLDER / "keys.json").read_bytes())

    def sees(message: Any) -> bool:
        return bool(message["contact"]["email"])

    assert run_syncer(sees, [message("action-encrypted.json")], keys=file).ok


@pytest.mark.parametrize("single", [action(), "{}", b"{}", bytearray(b"{}"), None])
def test_a_single_message_is_refused_with_what_to_write(single: Any) -> None:
    """A dict would be taken for the list of its keys, a text for one of its characters."""
    with pytest.raises(TypeError, match=r"must be a list .* write \[message\]"):
        run_syncer(yes, single)


def test_messages_may_be_any_iterable() -> None:
    assert run_syncer(yes, (action(n) for n in range(3))).acked == 3


class Broken:
    """Fails at one moment, as its author wrote it."""

    at = ""

    def __init__(self) -> None:
        self.fail("made")

    def __enter__(self) -> None:
        self.fail("entered")

    def __exit__(self, *exc: object) -> None:
        self.fail("left")

    def __call__(self, message: Any) -> bool:
        self.fail("called")
        return True

    def fail(self, at: str) -> None:
        if at in self.at:
            raise LookupError(f"broken when {at}")


class BrokenAsync:
    def __init__(self) -> None:
        self.broken = Broken()

    async def __aenter__(self) -> None:
        self.broken.fail("entered")

    async def __aexit__(self, *exc: object) -> None:
        self.broken.fail("left")

    async def __call__(self, message: Any) -> bool:
        self.broken.fail("called")
        return True


@pytest.mark.parametrize("kind", [Broken, BrokenAsync])
@pytest.mark.parametrize("at", ["made", "entered", "left"])
def test_the_persons_own_error_stands_alone(monkeypatch: pytest.MonkeyPatch, kind: Any, at: str) -> None:
    """Of chronicle's way to their code there is no frame but that of run_syncer itself."""
    monkeypatch.setattr(Broken, "at", at)
    with pytest.raises(LookupError, match=f"broken when {at}") as caught:
        run_syncer(kind, [action()])
    assert caught.value.__cause__ is caught.value.__context__ is None
    places = [frame.f_code.co_filename for frame, _ in walk_tb(caught.value.__traceback__)]
    assert places[0] == __file__
    assert places[1].endswith("chronicle/testing.py")
    assert set(places[2:]) == {__file__}


@pytest.mark.parametrize("kind", [Broken, BrokenAsync])
def test_a_first_failure_is_not_hidden_by_the_next(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setattr(Broken, "at", ("called", "left"))
    result = run_syncer(kind, [action()])
    assert result.fatal == "the syncer raised LookupError: broken when called; the syncer failed to close"


def test_a_syncer_that_cannot_be_called_is_an_error_of_its_own() -> None:
    with pytest.raises(SyncerError, match="takes 0 arguments"):
        run_syncer(lambda: True, [])


def test_no_messages_are_no_trouble() -> None:
    assert run_syncer(yes, []).ok
