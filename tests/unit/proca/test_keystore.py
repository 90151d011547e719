"""Key stores: Z8, and what `chronicle keys new` writes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chronicle.errors import KeyStoreError
from chronicle.proca.keystore import KeyStore, add_key, decode, encode, new_pair
from support.files import as_root
from support.samples import FOLDER, body, message

SECRETS = [entry["private"] for entry in message("keys.json").values()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The sample key store, private to us."""
    copy = tmp_path / "keys.json"
    shutil.copyfile(FOLDER / "keys.json", copy)
    copy.chmod(0o600)
    return copy


def refused(source: Path | str) -> KeyStoreError:
    with pytest.raises(KeyStoreError) as caught:
        KeyStore.load(str(source))
    shown = f"{caught.value} {caught.value.remedy}"
    assert not any(secret in shown for secret in SECRETS)
    return caught.value


def test_a_file_is_read(path: Path) -> None:
    assert KeyStore.load(str(path)).publics() == tuple(message("keys.json"))


def test_a_text_is_read() -> None:
    assert KeyStore.load("  " + body("keys.json").decode()).publics() == tuple(message("keys.json"))


def test_both_forms_may_be_mixed() -> None:
    (first, one), (second, two) = message("keys.json").items()
    store = KeyStore.load(json.dumps({first: one["private"], second + "=": two}))
    assert store.publics() == (first, second)
    assert len(KeyStore.load(body("keys-old-form.json").decode())) == 1


def test_the_sign_keys_of_the_store_and_of_the_caller_are_pinned() -> None:
    text, other = body("keys-pinned.json").decode(), new_pair()[0]
    listed = tuple(message("keys-pinned.json")["signKeys"])
    store = KeyStore.load(text, sign_keys=[other, listed[0] + "="])
    assert store.signers() == (*listed, other)
    assert store.publics() == tuple(message("keys.json"))
    assert KeyStore.load(body("keys.json").decode()).signers() == ()


@pytest.mark.parametrize("listed", [[], {}, None, "text", [5], ["short"], ["!" * 43], [None]])
def test_a_list_of_sign_keys_that_is_none_is_refused(listed: object) -> None:
    """An empty list could mean everybody or nobody."""
    assert "signKeys" in str(refused(json.dumps({**message("keys.json"), "signKeys": listed})))


def test_a_sign_key_that_is_none_is_named_by_its_number() -> None:
    good, private = new_pair()
    with pytest.raises(KeyStoreError, match="--sign-key 2 is not a key") as caught:
        KeyStore.load(body("keys.json").decode(), sign_keys=[good, private + "AA"])
    assert private not in f"{caught.value} {caught.value.remedy}"


def test_a_new_key_leaves_the_sign_keys_in_the_store(path: Path) -> None:
    shutil.copyfile(FOLDER / "keys-pinned.json", path)
    public = add_key(str(path))
    store = KeyStore.load(str(path))
    assert store.publics()[-1] == public
    assert list(store.signers()) == message("keys-pinned.json")["signKeys"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o666])
def test_Z8_a_file_open_to_others_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert refused(path).remedy == f"chmod 600 {path}"


def test_Z8_a_read_only_file_is_fine(path: Path) -> None:
    path.chmod(0o400)
    assert len(KeyStore.load(str(path))) == 2


def test_Z8_a_symbolic_link_is_refused(path: Path) -> None:
    link = path.with_name("link.json")
    link.symlink_to(path)
    assert "symbolic link" in str(refused(link))


@as_root
def test_Z8_a_file_of_somebody_else_is_refused(path: Path) -> None:
    os.chown(path, 12345, -1)
    assert "another user" in str(refused(path))


def test_Z8_a_folder_and_a_pipe_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert "not a file" in str(refused(pipe))
    assert "not a file" in str(refused(tmp_path))


def test_D_9_a_missing_file_has_a_remedy(tmp_path: Path) -> None:
    assert "chronicle keys new" in refused(tmp_path / "none.json").remedy
    refused("a\0b")


def test_Z8_a_key_given_as_the_path_is_not_shown() -> None:
    refused(SECRETS[0])


def test_Z8_a_file_that_is_far_too_large_is_refused(path: Path) -> None:
    path.write_bytes(b" " * (1024 * 1024 + 1))
    assert "larger" in str(refused(path))


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"a": 1}',
        '{"a": {}}',
        '{"a": null}',
        '{"a": []}',
        '{"a": {"private": 5}}',
        '{"a": "b"}',
        '{"": ""}',
        '{"ą": "ę"}',
        '{"\\ud800": "x"}',
    ],
)
def test_Z8_what_is_no_key_store_is_refused(content: str) -> None:
    refused(content)


def test_Z8_a_file_that_is_no_object_is_refused(path: Path) -> None:
    path.write_text(json.dumps(SECRETS))
    assert "not a JSON object" in str(refused(path))
    path.write_text("")
    refused(path)


def test_Z8_lengths_are_checked() -> None:
    public, private = new_pair()
    for wrong in (private[:-2], private + "AA", "", "?" * 43):
        assert "entry 1" in str(refused(json.dumps({public: wrong})))
        assert "entry 1" in str(refused(json.dumps({wrong: {"private": private}})))


def test_Z8_the_two_keys_must_belong_together() -> None:
    (first, one), (second, two) = message("keys.json").items()
    assert "entry 2" in str(refused(json.dumps({first: one, second: one})))
    assert "swapped" in refused(json.dumps({one["private"]: first})).remedy
    assert two["private"] not in str(refused(json.dumps({two["private"]: second})))


def test_Z8_nothing_shows_a_key(path: Path) -> None:
    store = KeyStore.load(str(path))
    assert repr(store) == str(store) == "<KeyStore 2 keys>"


def test_keys_new_creates_a_private_indented_file(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    public = add_key(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_text()
    assert content == json.dumps(json.loads(content), indent=2) + "\n"
    assert KeyStore.load(str(path)).publics() == (public,)
    assert os.listdir(tmp_path) == ["new.json"]


def test_keys_new_keeps_what_is_there(path: Path) -> None:
    (first, one), (second, two) = message("keys.json").items()
    before = {first: one["private"], second: two}
    path.write_text(json.dumps(before))
    public = add_key(str(path))
    content = json.loads(path.read_text())
    assert list(content) == [first, second, public]
    assert {key: content[key] for key in before} == before


def test_keys_new_leaves_a_file_alone_that_it_cannot_trust(path: Path) -> None:
    path.chmod(0o644)
    with pytest.raises(KeyStoreError):
        add_key(str(path))
    assert path.read_bytes() == body("keys.json")
    path.chmod(0o600)
    path.write_bytes(b"{broken")
    with pytest.raises(KeyStoreError):
        add_key(str(path))
    assert path.read_bytes() == b"{broken"
    assert os.listdir(path.parent) == [path.name]


def test_keys_new_says_when_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyStoreError, match="No such file"):
        add_key(str(tmp_path / "none" / "keys.json"))


def test_keys_new_loses_no_key_when_called_at_the_same_time(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(add_key(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(KeyStore.load(path).publics()) == sorted(made)
    assert len(set(made)) == 8


def test_base64url_reads_both_paddings_and_nothing_else() -> None:
    assert decode(encode(b"\xff\xfe")) == decode("__4=") == b"\xff\xfe"
    for wrong in ("a", "a b", "ab\n", "ab=c", "ą"):
        with pytest.raises(ValueError):
            decode(wrong)


def test_without_a_key_store_nobody_pays_for_loading_nacl() -> None:
    code = "import sys, chronicle.core.pipeline, chronicle.core.record; sys.exit('nacl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
