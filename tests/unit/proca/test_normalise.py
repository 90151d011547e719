"""Schemas and ids of proca messages: R-004-17 to 23, D-18."""

from __future__ import annotations

from typing import Any

import pytest

from chronicle.errors import InvalidMessage
from chronicle.proca.normalise import copy_ids, merge_contact
from chronicle.proca.schema import ACTION, EVENT, schema_of
from support.samples import message


def test_R_004_17_two_schemas_are_accepted() -> None:
    assert schema_of(message("action-plain.json")) == ACTION
    assert schema_of(message("event-email-status.json")) == EVENT


@pytest.mark.parametrize(
    "schema",
    ["proca:action:1", "proca:action:3", "", None, 2, True, ["proca:action:2"], {"a": 1}, "PROCA:ACTION:2"],
)
def test_R_004_18_any_other_schema_is_bad_input(schema: Any) -> None:
    with pytest.raises(InvalidMessage):
        schema_of({"schema": schema})


def test_R_004_18_no_schema_is_bad_input() -> None:
    with pytest.raises(InvalidMessage, match="names no schema"):
        schema_of({})


def test_R_004_18_the_error_repeats_a_schema_only_if_it_is_harmless() -> None:
    with pytest.raises(InvalidMessage, match="proca:action:1"):
        schema_of(message("action-v1.json"))
    for forged in ("ada@example.org", "+48600000001", "proca:action:1\n", "a:b:123456789", "x\x1b[31m:y:1"):
        with pytest.raises(InvalidMessage) as caught:
            schema_of({"schema": forged})
        assert forged not in str(caught.value)


@pytest.mark.parametrize(
    ("requirement", "field", "owner"),
    [
        ("R-004-20", "campaignId", "campaign"),
        ("R-004-21", "actionId", "action"),
        ("R-004-22", "orgId", "org"),
        ("R-004-23", "actionPageId", "actionPage"),
    ],
)
class TestIds:
    def test_the_id_is_copied_and_the_rest_stays(self, requirement: str, field: str, owner: str) -> None:
        plain = message("action-plain.json")
        copy_ids(plain)
        assert plain[owner] == {**message("action-plain.json")[owner], "id": plain[field]}

    def test_it_wins_over_an_id_that_is_there(self, requirement: str, field: str, owner: str) -> None:
        value: dict[str, Any] = {field: 5, owner: {"id": "old"}}
        copy_ids(value)
        assert value[owner]["id"] == 5

    @pytest.mark.parametrize("absent", [{}, {"null": None}])
    def test_D_18_without_one_nothing_is_overwritten(
        self, requirement: str, field: str, owner: str, absent: dict[str, None]
    ) -> None:
        value: dict[str, Any] = {owner: {"id": 7}} | ({field: None} if absent else {})
        copy_ids(value)
        assert value[owner] == {"id": 7}

    @pytest.mark.parametrize("missing", [True, False])
    def test_D_18_a_missing_object_is_made(
        self, requirement: str, field: str, owner: str, missing: bool
    ) -> None:
        value: dict[str, Any] = {field: 5} if missing else {field: 5, owner: None}
        copy_ids(value)
        assert value == {field: 5, owner: {"id": 5}}

    @pytest.mark.parametrize("wrong", ["text", 1, True, [], [{}]])
    def test_something_else_in_its_place_is_bad_input(
        self, requirement: str, field: str, owner: str, wrong: object
    ) -> None:
        with pytest.raises(InvalidMessage, match=f"{owner} is not an object"):
            copy_ids({field: 5, owner: wrong})


def test_D_18_without_any_id_nothing_is_made() -> None:
    value: dict[str, Any] = {"actionId": None, "tracking": None}
    copy_ids(value)
    assert value == {"actionId": None, "tracking": None}


def test_R_004_25_and_26_opened_fields_go_into_the_contact_and_win() -> None:
    value: dict[str, Any] = {"contact": {"email": None, "firstName": "A", "area": "PL"}}
    merge_contact(value, {"email": "e", "firstName": "B"})
    assert value["contact"] == {"email": "e", "firstName": "B", "area": "PL"}


@pytest.mark.parametrize("value", [{}, {"contact": None}])
def test_R_004_25_a_missing_contact_is_made(value: dict[str, Any]) -> None:
    merge_contact(value, {"email": "e"})
    assert value == {"contact": {"email": "e"}}


def test_R_004_25_a_contact_that_is_no_object_is_bad_input() -> None:
    with pytest.raises(InvalidMessage):
        merge_contact({"contact": "x"}, {"email": "e"})
