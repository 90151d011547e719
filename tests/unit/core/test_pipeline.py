"""From a delivery to a message: R-004-12 to 27, D-3, D-4, D-18, D-20, D-21, X1."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.body import too_large
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.outcome import Exhausted
from chronicle.core.pipeline import Pipeline, Prepared, Schema
from chronicle.errors import CannotDecrypt, InvalidMessage, MessageError
from chronicle.proca.keystore import KeyStore
from support.samples import body, delivery, keys, message

KEYS = keys()
EXPECTED = message("expected-decrypted.json")


def with_deaths(*counts: object) -> Delivery:
    headers = {"x-death": [{"queue": "q", "reason": "expired", "count": count} for count in counts]}
    return delivery(b"not even JSON", envelope=Envelope(headers))


def prepare(name: str, **choices: Any) -> Prepared:
    return Pipeline(**choices).prepare(delivery(body(name)))


class TestRetryGuard:
    @pytest.mark.parametrize(
        ("count", "limit", "over"), [(0, 1, False), (2, 2, False), (3, 2, True), (9, 1, True)]
    )
    def test_R_004_13_and_14_more_cycles_than_the_limit(self, count: int, limit: int, over: bool) -> None:
        outcome = Pipeline(max_retries=limit).exhausted(with_deaths(count))
        assert outcome == (Exhausted(count, limit) if over else None)

    def test_R_004_13_the_first_entry_counts(self) -> None:
        assert Pipeline(max_retries=2).exhausted(with_deaths(1, 99)) is None
        assert Pipeline(max_retries=2).exhausted(with_deaths(3, 0)) == Exhausted(3, 2)

    def test_R_004_12_without_a_limit_the_headers_are_not_even_decoded(self) -> None:
        def refuse(raw: object) -> Envelope:
            raise AssertionError("nobody asked for the headers")

        unopened = delivery(body("action-plain.json"), open_envelope=refuse)
        assert Pipeline().exhausted(unopened) is None
        assert Pipeline().prepare(unopened).action_id == 1001

    @pytest.mark.parametrize(
        "forged", [[], "str", [1], [{"count": "9"}], {"count": 9}, -1, [{"count": -1}], None]
    )
    def test_RB11_a_forged_header_reads_as_none(self, forged: object) -> None:
        strange = delivery(b"{}", envelope=Envelope({"x-death": forged}))
        assert Pipeline(max_retries=1).exhausted(strange) is None

    def test_RB13_headers_that_cannot_be_decoded_count_as_none(self) -> None:
        faulty = delivery(b"{}", envelope=Envelope(fault="nested deeper than 64"))
        assert Pipeline(max_retries=1).exhausted(faulty) is None


@pytest.mark.parametrize("schema", list(Schema))
def test_Z12_a_body_that_was_not_read_is_bad_input_with_the_same_reason(schema: Schema) -> None:
    unread = delivery(b"", unread=too_large(20_000_000, 4_000_000))
    with pytest.raises(InvalidMessage, match="the body has 20000000 bytes, the limit is 4000000"):
        Pipeline(schema).prepare(unread)


class TestProca:
    def test_a_message_that_a_stranger_sealed_is_bad_input_when_the_sign_key_is_pinned(self) -> None:
        """Z7: the contact in it is whatever the stranger likes."""
        forged = prepare("action-encrypted-stranger.json", keys=KEYS)
        assert forged.message["contact"]["email"] == "forged@example.org"
        pinned = KeyStore.load(body("keys-pinned.json").decode())
        with pytest.raises(CannotDecrypt, match="not one of the pinned sign keys"):
            prepare("action-encrypted-stranger.json", keys=pinned)
        assert prepare("action-encrypted.json", keys=pinned).opened

    def test_R_004_15_and_19_a_plain_action(self) -> None:
        prepared = prepare("action-plain.json")
        plain = message("action-plain.json")
        for owner in ("campaign", "action", "org", "actionPage"):
            plain[owner]["id"] = plain[f"{owner}Id"]
        assert prepared == Prepared(plain, 1001)

    def test_D_18_a_system_message_has_no_ids_to_copy(self) -> None:
        prepared = prepare("action-system.json", keys=KEYS)
        assert prepared.action_id is None
        assert "id" not in prepared.message["action"]
        assert prepared.message["campaign"]["id"] == 9

    @pytest.mark.parametrize(
        "content", [b"[]", b"null", b'"x"', b"1", b"", b"{", b"{}", body("action-v1.json")]
    )
    def test_R_004_16_and_18_bad_input(self, content: bytes) -> None:
        with pytest.raises(InvalidMessage):
            Pipeline().prepare(delivery(content))

    @pytest.mark.parametrize(
        "name", ["event-email-status.json", "event-confirm-created.json", "event-campaign-updated.json"]
    )
    def test_D_18_events_are_passed_as_they_are(self, name: str) -> None:
        assert prepare(name, keys=KEYS, require_decryption=True).message == message(name)

    def test_D_18_events_are_normalised_on_request(self) -> None:
        prepared = prepare("event-email-status.json", keys=KEYS, normalize_events=True)
        assert prepared.action_id == prepared.message["action"]["id"] == 1002
        assert prepared.message["campaign"]["id"] == 9
        assert "org" not in prepared.message
        contact = prepared.message["supporter"]["contact"]
        assert contact["email"]
        assert contact["area"] == "PL"
        assert "contact" not in prepared.message

    @pytest.mark.parametrize("name", ["event-confirm-created.json", "event-campaign-updated.json"])
    def test_D_18_an_event_without_a_supporter_is_normalised_too(self, name: str) -> None:
        assert prepare(name, keys=KEYS, normalize_events=True).notes == ()

    @pytest.mark.parametrize("supporter", ["x", 1, []])
    def test_D_18_a_supporter_that_is_no_object_is_bad_input(self, supporter: object) -> None:
        event = {"schema": "proca:event:2", "supporter": supporter}
        with pytest.raises(InvalidMessage):
            Pipeline(normalize_events=True).prepare(delivery(event))

    @pytest.mark.parametrize("forged", ["1", 1.0, True, None, [], {}])
    def test_an_action_id_is_a_whole_number_or_none(self, forged: object) -> None:
        prepared = Pipeline().prepare(delivery({"schema": "proca:event:2", "actionId": forged}))
        assert prepared.action_id is None


class TestSealed:
    @pytest.mark.parametrize("name", sorted(EXPECTED))
    def test_R_004_25_and_26_opened_fields_win(self, name: str) -> None:
        prepared = prepare(name, keys=KEYS, require_decryption=True)
        assert prepared.message["contact"] == {**message(name)["contact"], **EXPECTED[name]}
        assert prepared.notes == ()

    def test_R_004_24_without_a_key_store_nothing_is_opened(self) -> None:
        prepared = prepare("action-encrypted.json")
        assert prepared.message["contact"] == message("action-encrypted.json")["contact"]
        assert prepared.message["personalInfo"] == message("action-encrypted.json")["personalInfo"]

    def test_R_004_24_without_personal_info_nothing_is_opened(self) -> None:
        assert prepare("action-plain.json", keys=KEYS, require_decryption=True).notes == ()

    def test_D_20_an_unknown_key_is_noted(self) -> None:
        prepared = prepare("action-encrypted-unknown-key.json", keys=KEYS)
        assert prepared.message["contact"] == message("action-encrypted-unknown-key.json")["contact"]
        assert prepared.notes == ("personal data left sealed: key HglVjBSF… is not in the key store",)

    def test_D_20_an_unknown_key_fails_on_request(self) -> None:
        with pytest.raises(CannotDecrypt, match="HglVjBSF…"):
            prepare("action-encrypted-unknown-key.json", keys=KEYS, require_decryption=True)

    def test_D_20_required_decryption_without_a_key_store_fails(self) -> None:
        with pytest.raises(CannotDecrypt, match="no key store"):
            prepare("action-encrypted.json", require_decryption=True)

    @pytest.mark.parametrize("required", [True, False])
    def test_D_20_damaged_data_never_reaches_the_syncer(self, required: bool) -> None:
        with pytest.raises(CannotDecrypt):
            prepare("action-encrypted-damaged.json", keys=KEYS, require_decryption=required)

    def test_D_21_the_delivery_stays_as_it_came(self) -> None:
        came = delivery(body("action-encrypted.json"))
        Pipeline(keys=KEYS).prepare(came)
        assert came.body == body("action-encrypted.json")


class TestOtherSchemas:
    def test_D_4_json_takes_any_object_as_it_is(self) -> None:
        value = {"schema": "whatever", "actionId": 7, "action": "text"}
        assert Pipeline(schema=Schema.JSON).prepare(delivery(value)) == Prepared(value, 7)

    @pytest.mark.parametrize("content", [b"[1]", b"1", b"null", b"nope"])
    def test_D_4_json_that_is_no_object_is_bad_input(self, content: bytes) -> None:
        with pytest.raises(InvalidMessage):
            Pipeline(schema=Schema.JSON).prepare(delivery(content))

    def test_raw_is_the_bytes(self) -> None:
        assert Pipeline(schema=Schema.RAW).prepare(delivery(b"\xff\0")) == Prepared(b"\xff\0")

    @pytest.mark.parametrize("schema", list(Schema))
    def test_Z12_the_size_limit_holds_for_every_schema(self, schema: Schema) -> None:
        content = body("action-plain.json")
        pipeline = Pipeline(schema=schema, max_body=len(content))
        assert pipeline.prepare(delivery(content)).message
        with pytest.raises(InvalidMessage, match="the limit is"):
            pipeline.prepare(delivery(content + b" "))


# Bytes that get past the first checks, where a careless stage would fall over.
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=9)
PARTS = ["contact", "payload", "nonce", "encryptKey", "signKey", "public", "personalInfo", "id"]
INNER: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(PARTS), inner),
    max_leaves=8,
)
LIKELY: st.SearchStrategy[bytes] = st.dictionaries(
    st.sampled_from(
        [
            "actionId",
            "action",
            "campaignId",
            "campaign",
            "orgId",
            "org",
            "actionPageId",
            "contact",
            "personalInfo",
            "supporter",
        ]
    ),
    INNER,
).flatmap(
    lambda fields: st.sampled_from(["proca:action:2", "proca:event:2", "proca:action:1"]).map(
        lambda schema: json.dumps({**fields, "schema": schema}).encode()
    )
)


@given(
    st.binary(max_size=300) | LIKELY,
    st.sampled_from(Schema),
    st.sampled_from([None, KEYS]),
    st.booleans(),
    st.booleans(),
    st.integers(min_value=1, max_value=400),
)
def test_X1_any_bytes_end_in_a_message_or_in_MessageError(
    content: bytes, schema: Schema, store: Any, required: bool, events: bool, limit: int
) -> None:
    pipeline = Pipeline(schema, store, required, events, limit)
    try:
        prepared = pipeline.prepare(delivery(content))
    except MessageError:
        return
    assert isinstance(prepared, Prepared)
