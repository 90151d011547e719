"""Sealed personal data: R-004-24 to 26, D-20, Z7."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.public import Box, PrivateKey

from chronicle.errors import CannotDecrypt, UnknownSigner
from chronicle.proca.keystore import KEY_BYTES, MAX_BOXES, KeyStore, encode, new_pair
from chronicle.proca.sealed import open_personal_info
from support.samples import body, keys, message

EXPECTED = message("expected-decrypted.json")
GENERIC = "the message's personal data is damaged or was not sealed for this key"


def sealed_info(plain: bytes, receiver: PrivateKey, sender: PrivateKey) -> dict[str, Any]:
    nonce = bytes(range(24))
    payload = Box(sender, receiver.public_key).encrypt(plain, nonce).ciphertext
    return {
        "payload": encode(payload),
        "nonce": encode(nonce),
        "encryptKey": {"id": 1, "public": encode(bytes(receiver.public_key))},
        "signKey": {"id": 2, "public": encode(bytes(sender.public_key))},
    }


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_R_004_24_samples_of_procas_own_sdk_open(name: str) -> None:
    """Sealed by the JavaScript implementation, the second with a rotated key."""
    assert open_personal_info(message(name)["personalInfo"], keys()) == EXPECTED[name]


def test_R_004_24_padding_does_not_matter() -> None:
    info = message("action-encrypted.json")["personalInfo"]
    padded = {
        **info,
        "payload": info["payload"] + "=" * (-len(info["payload"]) % 4),
        "encryptKey": {"public": info["encryptKey"]["public"] + "="},
        "signKey": {"public": info["signKey"]["public"] + "="},
    }
    assert open_personal_info(padded, keys()) == EXPECTED["action-encrypted.json"]


def test_D_20_an_unknown_key_is_no_failure() -> None:
    assert open_personal_info(message("action-encrypted-unknown-key.json")["personalInfo"], keys()) is None


def test_D_20_damaged_data_is_refused() -> None:
    with pytest.raises(CannotDecrypt, match=GENERIC):
        open_personal_info(message("action-encrypted-damaged.json")["personalInfo"], keys())


@pytest.mark.parametrize("name", ["payload", "nonce", "encryptKey", "signKey"])
@pytest.mark.parametrize(
    "wrong", ["absent", None, "", "!!", "ą", 5, [], {}, {"public": None}, {"public": "QQ"}]
)
def test_D_20_a_missing_or_wrong_part_is_refused_with_one_text(name: str, wrong: object) -> None:
    info = message("action-encrypted.json")["personalInfo"]
    if wrong == "absent":
        del info[name]
    else:
        info[name] = wrong
    with pytest.raises(CannotDecrypt, match=f"^{GENERIC}$"):
        open_personal_info(info, keys())


@pytest.mark.parametrize("info", ["text", 5, True, [], ["payload"], {}])
def test_D_20_what_is_no_object_is_refused(info: object) -> None:
    with pytest.raises(CannotDecrypt):
        open_personal_info(info, keys())


def test_D_20_a_sender_key_that_is_no_key_is_refused() -> None:
    info = message("action-encrypted.json")["personalInfo"]
    info["signKey"]["public"] = encode(bytes(32))
    with pytest.raises(CannotDecrypt):
        open_personal_info(info, keys())


@pytest.mark.parametrize(
    "plain", [b"", b"[]", b"null", b'"x"', b"NaN", b"\xff", b'{"a":' * 300 + b"1" + b"}" * 300]
)
def test_D_20_what_was_sealed_must_be_a_flat_object(plain: bytes) -> None:
    receiver, sender = PrivateKey.generate(), PrivateKey.generate()
    store = KeyStore({bytes(receiver.public_key): receiver})
    assert open_personal_info(sealed_info(b"{}", receiver, sender), store) == {}
    with pytest.raises(CannotDecrypt):
        open_personal_info(sealed_info(plain, receiver, sender), store)


def test_Z12_the_sender_does_not_decide_how_many_boxes_are_kept() -> None:
    public, private = new_pair()
    store = KeyStore.load(f'{{"{public}": "{private}"}}')
    for _ in range(MAX_BOXES + 5):
        assert store.box(public, new_pair()[0]) is not None
    assert len(store._boxes) <= MAX_BOXES


def test_Z12_spellings_of_one_key_do_not_fill_the_cache() -> None:
    """A key may end in any number of `=`: a cache by its text keeps as many bytes as the sender likes."""
    public, private = new_pair()
    store, sender = KeyStore.load(f'{{"{public}": "{private}"}}'), new_pair()[0]
    boxes = {store.box(public + "=" * 100_000 * n, sender + "=" * 100_000 * n) for n in range(5)}
    assert len(boxes) == len(store._boxes) == 1
    assert all(len(key) == KEY_BYTES for pair in store._boxes for key in pair)


def test_a_stranger_can_seal_unless_the_sign_key_is_pinned() -> None:
    """Z7: the organisation's key is public, so anybody can seal something that opens."""
    info = message("action-encrypted-stranger.json")["personalInfo"]
    opened = open_personal_info(info, keys())
    assert opened is not None
    assert opened["firstName"] == "Forged"
    pinned = KeyStore.load(body("keys-pinned.json").decode())
    for _ in range(2):  # not only the first time
        with pytest.raises(UnknownSigner, match=f"key {info['signKey']['public'][:8]}….*pinned"):
            open_personal_info(info, pinned)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_the_pinned_key_sealed_opens(name: str) -> None:
    pinned = KeyStore.load(body("keys-pinned.json").decode())
    assert open_personal_info(message(name)["personalInfo"], pinned) == EXPECTED[name]


def test_D_20_with_pinned_keys_an_unknown_receiver_is_still_no_failure() -> None:
    pinned = KeyStore.load(body("keys.json").decode(), sign_keys=[new_pair()[0]])
    assert open_personal_info(message("action-encrypted-unknown-key.json")["personalInfo"], pinned) is None
    with pytest.raises(UnknownSigner):
        open_personal_info(message("action-encrypted.json")["personalInfo"], pinned)


def test_Z7_a_box_is_made_once_for_a_pair() -> None:
    public, private = new_pair()
    store, sender = KeyStore.load(f'{{"{public}": "{private}"}}'), new_pair()[0]
    assert store.box(public, sender) is store.box(public, sender)


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["payload", "nonce", "encryptKey", "signKey", "public"]), inner)
    ),
)


STORE = keys()


@given(ANYTHING)
def test_Z7_any_value_ends_in_fields_in_none_or_in_CannotDecrypt(info: Any) -> None:
    try:
        opened = open_personal_info(info, STORE)
    except CannotDecrypt:
        return
    assert opened is None or isinstance(opened, dict)
