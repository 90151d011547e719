"""One delivery through guard, pipeline, syncer and policy: every way ends in one settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from chronicle.core.delivery import Delivery, Envelope, Lease
from chronicle.core.outcome import Action, Asked, Exhausted, Failed, Fatal, Invalid, Outcome, Revoked, Synced
from chronicle.core.pipeline import Pipeline, Prepared, Schema
from chronicle.core.policy import OnException, Policy
from chronicle.core.settlement import Settlement
from chronicle.errors import Ask, DeadLetter, Drop, InvalidMessage, Retry
from chronicle.workers.handler import Handler, judge
from support.proca_messages import CANARY, action
from support.samples import body, delivery, keys

EXIT = Policy()
FAIL = Policy(on_exception=OnException.FAIL)
Run = Callable[..., Settlement]


def run_plain(
    call: Callable[..., Any],
    given: Delivery,
    policy: Policy = EXIT,
    pipeline: Pipeline | None = None,
    takes_delivery: bool = False,
) -> Settlement:
    return Handler(pipeline or Pipeline(), policy, call, takes_delivery=takes_delivery).run(given)


def run_async(
    call: Callable[..., Any],
    given: Delivery,
    policy: Policy = EXIT,
    pipeline: Pipeline | None = None,
    takes_delivery: bool = False,
) -> Settlement:
    async def called(*args: Any) -> Any:
        await asyncio.sleep(0)
        return call(*args)

    handling = Handler(pipeline or Pipeline(), policy, called, takes_delivery=takes_delivery)
    return asyncio.run(handling.run_async(given))


both = pytest.mark.parametrize("run", [run_plain, run_async])


def raising(error: BaseException) -> Callable[[Any], Any]:
    def sync(message: Any) -> Any:
        raise error

    return sync


class TestNoMemory:
    @both
    def test_the_message_is_not_decoded_again_for_an_error(self, run: Run) -> None:
        """What a syncer had no memory for, the search of its error has none for either; nothing is shown."""

        class Scarce(Pipeline):
            __slots__ = ()
            decoded: ClassVar[list[Delivery]] = []

            def prepare(self, delivery: Delivery) -> Prepared:
                self.decoded.append(delivery)
                if len(self.decoded) > 1:
                    raise MemoryError
                return super().prepare(delivery)

        settlement = run(raising(MemoryError(CANARY)), delivery(action()), pipeline=Scarce())
        assert isinstance(settlement.outcome, Fatal)
        assert settlement.outcome.reason.startswith("the syncer raised MemoryError")
        assert CANARY not in settlement.outcome.reason + settlement.outcome.trace


class TestAnswers:
    def test_R_004_29_and_30_true_and_false(self) -> None:
        assert judge(True) == Synced()
        assert judge(False) == Failed("the syncer returned False")

    @pytest.mark.parametrize("answer", [1, 0, None, "true", "", [], 1.0, object(), NotImplemented])
    @both
    def test_R_004_32_and_X3_anything_else_is_fatal(self, run: Run, answer: object) -> None:
        settlement = run(lambda message: answer, delivery(action()))
        name = type(answer).__name__
        assert isinstance(settlement.outcome, Fatal)
        said = settlement.outcome.reason.replace("returned None,", "returned NoneType,")
        assert said.removesuffix(": is a `return True` missing?") == (
            f"the syncer returned {name}, not True or False"
        )
        assert settlement.verdict.action is Action.LEAVE

    def test_X3_truth_by_identity_and_not_by_what_it_says_of_itself(self) -> None:
        class Numpy:
            def __bool__(self) -> bool:
                raise AssertionError("nobody asked")

            def __eq__(self, other: object) -> bool:
                raise AssertionError("nobody asked")

            __hash__ = None  # type: ignore[assignment]

        assert judge(Numpy()) == Fatal("the syncer returned Numpy, not True or False")

    @pytest.mark.filterwarnings("ignore:coroutine")
    def test_a_coroutine_from_a_plain_function_comes_with_the_way_out(self) -> None:
        async def sync(message: Any) -> bool:
            return True

        outcome = run_plain(lambda message: sync(message), delivery(action())).outcome
        assert outcome == Fatal(
            "the syncer returned coroutine, not True or False: write `async def`, or return its result"
        )

    @both
    def test_a_syncer_that_takes_two_gets_the_delivery_as_it_came(self, run: Run) -> None:
        given = delivery(action())
        seen: list[tuple[Any, ...]] = []

        def sync(*args: Any) -> bool:
            seen.append(args)
            return True

        run(sync, given, takes_delivery=True)
        run(sync, given)
        assert seen[0][1] is given
        assert len(seen[1]) == 1


class TestRaising:
    @pytest.mark.parametrize(
        ("ask", "verdict", "delay"),
        [
            (Retry("later"), Action.REQUEUE, None),
            (Retry("later", after=3), Action.REQUEUE, 3),
            (DeadLetter("bad"), Action.DEAD_LETTER, 0),
            (Drop("test data"), Action.DROP, 0),
        ],
    )
    @pytest.mark.parametrize("policy", [EXIT, FAIL], ids=["exit", "fail"])
    @both
    def test_D_16_asking_for_a_verdict_is_never_fatal(
        self, run: Run, policy: Policy, ask: Ask, verdict: Action, delay: float | None
    ) -> None:
        settlement = run(raising(ask), delivery(action()), policy)
        assert settlement.outcome == Asked(ask, str(ask))
        assert (settlement.verdict.action, settlement.verdict.delay) == (verdict, delay)

    @both
    def test_R_004_31_an_exception_is_fatal_and_leaves_the_message(self, run: Run) -> None:
        settlement = run(raising(KeyError("crm")), delivery(action()))
        assert isinstance(settlement.outcome, Fatal)
        assert settlement.outcome.reason == "the syncer raised KeyError: 'crm'"
        assert "in sync" in settlement.outcome.trace
        assert "/chronicle/workers/" not in settlement.outcome.trace
        assert settlement.verdict.action is Action.LEAVE

    @both
    def test_D_16_on_exception_fail_makes_it_a_failed_message(self, run: Run) -> None:
        settlement = run(raising(ValueError()), delivery(action()), FAIL)
        assert settlement.outcome == Failed("the syncer raised ValueError")
        assert settlement.verdict.action is Action.REQUEUE
        again = run(raising(ValueError()), delivery(action(), redelivered=True), FAIL)
        assert again.verdict.action is Action.DEAD_LETTER

    @pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
    @pytest.mark.parametrize("policy", [EXIT, FAIL], ids=["exit", "fail"])
    @both
    def test_X3_what_would_end_the_process_is_fatal_under_any_policy(
        self, run: Run, policy: Policy, error: BaseException
    ) -> None:
        settlement = run(raising(error), delivery(action()), policy)
        assert isinstance(settlement.outcome, Fatal)
        assert settlement.verdict.action is Action.LEAVE

    @both
    def test_a_message_error_of_the_syncers_own_is_no_bad_input(self, run: Run) -> None:
        assert isinstance(run(raising(InvalidMessage("mine")), delivery(action())).outcome, Fatal)

    @pytest.mark.parametrize("policy", [EXIT, FAIL], ids=["exit", "fail"])
    @both
    def test_rule_1_an_error_that_cannot_be_written_down_does_not_escape(
        self, run: Run, policy: Policy
    ) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("not even that")

        outcome = run(raising(Mute()), delivery(action()), policy).outcome
        assert isinstance(outcome, Fatal | Failed)
        assert outcome.reason == "the syncer raised Mute: ‹withheld›"

    @both
    def test_rule_1_nor_does_a_verdict_without_words(self, run: Run) -> None:
        class Mute(DeadLetter):
            def __str__(self) -> str:
                raise RuntimeError("not even that")

        settlement = run(raising(Mute()), delivery(action()))
        assert settlement.verdict.action is Action.DEAD_LETTER


class TestMasked:
    @pytest.mark.parametrize("policy", [EXIT, FAIL], ids=["exit", "fail"])
    @pytest.mark.parametrize("kind", [ValueError, Retry, DeadLetter, Drop])
    @both
    def test_D_21_no_reason_repeats_the_person(
        self, run: Run, kind: Callable[[str], BaseException], policy: Policy
    ) -> None:
        def sync(message: Any) -> bool:
            raise kind(f"cannot write {message['contact']['email']} ({message['contact']['firstName']})")

        settlement = run(sync, delivery(action()), policy)
        shown = f"{settlement.outcome} {settlement.verdict.reason} {settlement.outcome!r}"
        assert "cannot write" in settlement.verdict.reason
        assert CANARY not in shown.replace(repr(getattr(settlement.outcome, "ask", "")), "")

    def test_D_21_what_a_raw_body_holds_nobody_knows_so_all_is_withheld(self) -> None:
        def sync(message: bytes) -> bool:
            raise ValueError(message.decode())

        settlement = run_plain(sync, delivery(CANARY.encode()), pipeline=Pipeline(Schema.RAW))
        assert CANARY not in repr(settlement.outcome)


class TestBeforeTheSyncer:
    def never(self, message: Any) -> bool:
        raise AssertionError("the syncer must not be called")

    @both
    def test_R_004_14_exhausted_before_the_body_is_looked_at(self, run: Run) -> None:
        headers = {"x-death": [{"count": 6}]}
        given = delivery(b"not JSON", envelope=Envelope(headers))
        settlement = run(self.never, given, pipeline=Pipeline(max_retries=5))
        assert settlement.outcome == Exhausted(6, 5)
        assert settlement.verdict.action is Action.DROP

    @both
    def test_R_004_16_bad_input(self, run: Run) -> None:
        settlement = run(self.never, delivery(b"{"))
        assert isinstance(settlement.outcome, Invalid)
        assert not settlement.outcome.sealed
        assert settlement.verdict.action is Action.REQUEUE

    @both
    def test_K4_what_was_taken_back_is_not_begun(self, run: Run) -> None:
        lease = Lease()
        lease.end()
        settlement = run(self.never, delivery(action(), lease=lease))
        assert (settlement.outcome, settlement.verdict.action) == (Revoked(), Action.LEAVE)
        assert not lease.begun

    @both
    def test_K4_whoever_takes_it_back_later_sees_that_it_has_begun(self, run: Run) -> None:
        lease = Lease()
        seen: list[bool] = []

        def looks(message: Any) -> bool:
            seen.append(lease.begun)
            return True

        assert run(looks, delivery(action(), lease=lease)).outcome == Synced()
        assert (seen, lease.begun) == ([True], True)  # until it is settled, or tried again

    @both
    def test_D_20_sealed_for_somebody_else(self, run: Run) -> None:
        pipeline = Pipeline(keys=keys(), require_decryption=True)
        settlement = run(self.never, delivery(body("action-encrypted-unknown-key.json")), pipeline=pipeline)
        assert isinstance(settlement.outcome, Invalid)
        assert settlement.outcome.sealed

    @pytest.mark.parametrize("policy", [EXIT, FAIL], ids=["exit", "fail"])
    @both
    def test_a_defect_of_ours_is_fatal_and_never_bad_input(self, run: Run, policy: Policy) -> None:
        """Were it bad input, one defect would empty a queue into the dead letters."""

        class Defective(Pipeline):
            def prepare(self, delivery: Delivery) -> Prepared:
                raise LookupError(CANARY)

        settlement = run(self.never, delivery(action()), policy, Defective())
        assert isinstance(settlement.outcome, Fatal)
        assert settlement.outcome.reason == "chronicle failed on this message: LookupError"
        assert CANARY not in settlement.outcome.trace
        assert settlement.verdict.action is Action.LEAVE


class TestSettlement:
    @both
    def test_it_carries_what_the_log_needs(self, run: Run) -> None:
        settlement = run(lambda message: True, delivery(body("action-plain.json")))
        assert (settlement.action_id, settlement.notes, settlement.opened) == (1001, (), False)
        assert settlement.seconds > 0

    @both
    def test_it_says_whether_personal_data_was_opened(self, run: Run) -> None:
        pipeline = Pipeline(keys=keys())
        opened = run(lambda message: True, delivery(body("action-encrypted.json")), pipeline=pipeline)
        assert opened.opened
        left = delivery(body("action-encrypted-unknown-key.json"))
        sealed = run(lambda message: True, left, pipeline=pipeline)
        assert not sealed.opened
        assert len(sealed.notes) == 1

    @both
    def test_D_21_a_syncer_cannot_change_what_goes_back(self, run: Run) -> None:
        def sync(message: dict[str, Any]) -> bool:
            message.clear()
            return False

        raw = body("action-plain.json")
        settlement: Settlement = run(sync, delivery(raw))
        outcome: Outcome = settlement.outcome
        assert outcome == Failed("the syncer returned False")
        assert settlement.delivery.body == raw


class TestAnotherTry:
    @both
    def test_the_same_reason_again_can_be_read(self, run: Run) -> None:
        """D-21: what chronicle wrote about the try before is nothing of the message's."""
        headers = {"x-chronicle-reason": "crm busy", "x-chronicle-attempts": 1, "trace": "dingsda4711"}
        given = delivery(action(), envelope=Envelope(headers))
        settlement = run(raising(Retry("crm busy")), given)
        assert settlement.verdict.reason == "crm busy"
        quoted = run(raising(Retry("crm busy with dingsda4711")), given)
        assert "dingsda4711" not in quoted.verdict.reason
