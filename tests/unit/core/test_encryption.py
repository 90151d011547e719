"""Encrypted files: what goes in comes out, and any tampering in between is detected."""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.encryption import (
    Cost,
    Secret,
    SecretKind,
    cipher_from_header,
    decrypt_lines,
    decrypt_whole,
    encrypt_whole,
    is_encrypted,
    new_cipher,
)
from chronicle.errors import SettingError

# As little work as scrypt allows: what is shown here does not depend on how dear a guess is.
CHEAP: Final = Cost(n=2, r=1, p=1)
CANARY: Final = "hunter22-canary"
PASSPHRASE: Final = Secret(SecretKind.PASSPHRASE, CANARY.encode())
KEY: Final = Secret(SecretKind.KEY, b"k" * 32)
CONTENTS: Final = st.lists(st.binary(min_size=1, max_size=60), max_size=6)
SECRETS: Final = st.sampled_from([PASSPHRASE, KEY])


def encrypted(contents: list[bytes], secret: Secret = PASSPHRASE, *, closed: bool = True) -> list[bytes]:
    """An encrypted file's lines, each with its line end."""
    cipher = new_cipher(secret, os.urandom, CHEAP if secret.kind is SecretKind.PASSPHRASE else None)
    lines = [cipher.header, *(cipher.encrypt(content, os.urandom) for content in contents)]
    lines += [cipher.encrypt(b"", os.urandom)] if closed else []
    return [line + b"\n" for line in lines]


def decrypted(lines: list[bytes], secret: Secret = PASSPHRASE) -> tuple[list[bytes], list[str]]:
    """The contents, and what was said about the end."""
    said: list[str] = []
    found = list(decrypt_lines(lines, lambda _kind, _name: secret, "the file", said.append))
    assert [number for number, _ in found] == sorted(number for number, _ in found)
    return [content for _, content in found], said


@given(CONTENTS, SECRETS)
def test_what_was_encrypted_is_decrypted(contents: list[bytes], secret: Secret) -> None:
    lines = encrypted(contents, secret)
    assert is_encrypted(lines[0])
    assert decrypted(lines, secret) == (contents, [])


@given(CONTENTS.filter(bool), SECRETS)
def test_nothing_of_the_content_shows(contents: list[bytes], secret: Secret) -> None:
    joined = b"".join(encrypted(contents, secret)[1:])
    assert not any(content in joined for content in contents if len(content) > 8)


@given(st.data())
def test_a_changed_byte_is_found(data: st.DataObject) -> None:
    """Any byte of the file, to any other value: an error, or at the very end a torn line that is told."""
    contents = data.draw(CONTENTS)
    original = b"".join(encrypted(contents))
    at = data.draw(st.integers(0, len(original) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != original[at]))
    spoilt = original[:at] + bytes([other]) + original[at + 1 :]
    try:
        found, said = decrypted(spoilt.splitlines(True))
    except SettingError:
        return
    assert said
    assert found == contents[: len(found)]


@given(st.data())
def test_moved_dropped_and_doubled_lines_are_found(data: st.DataObject) -> None:
    lines = encrypted([b"one", b"two", b"three", b"four"])
    here = data.draw(st.integers(1, len(lines) - 2))
    there = data.draw(st.integers(1, len(lines) - 1).filter(lambda number: number != here))
    swapped = lines.copy()
    swapped[here], swapped[there] = lines[there], lines[here]
    for spoilt in (swapped, lines[:here] + lines[here + 1 :], [*lines[:here], lines[here], *lines[here:]]):
        with pytest.raises(SettingError, match="the file, line"):
            decrypted(spoilt)


def test_a_line_of_another_file_is_found() -> None:
    ours, theirs = encrypted([b"one", b"two"]), encrypted([b"one", b"two"])
    with pytest.raises(SettingError, match="line 2"):
        decrypted([ours[0], theirs[1], *ours[2:]])


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_an_old_end_behind_a_newer_beginning_is_found(kept: int) -> None:
    """Two states of one file that differ after some lines: no line of one fits into the other."""
    common = encrypted([b"one"], closed=False)
    ends = []
    for words in ((b"two", b"three", b"four", b""), (b"2", b"3", b"4", b"")):
        writer = cipher_from_header(common[0].rstrip(b"\n"), lambda _kind, _name: PASSPHRASE, "the file")
        writer.resume(common[-1].rstrip(b"\n"), None)
        ends.append([writer.encrypt(word, os.urandom) + b"\n" for word in words])
    old, new = ends
    with pytest.raises(SettingError, match=f"line {3 + kept}: "):
        decrypted([*common, *new[:kept], *old[kept:]])
    assert decrypted([*common, *new])[0] == [b"one", b"2", b"3", b"4"]


def test_a_file_of_the_old_format_has_a_clear_error() -> None:
    header = b'{"sealed":"chronicle:1","with":"key","salt":"AAAAAAAAAAAAAAAAAAAAAA==","proof":"AA=="}\n'
    with pytest.raises(SettingError, match="format of an early version") as caught:
        decrypted([header], KEY)
    assert "encrypt it again" in caught.value.remedy


@given(st.integers(1, 3), st.integers(0, 20))
def test_a_cut_end_is_read_as_far_as_it_goes_and_told(whole: int, torn: int) -> None:
    """A writer that was killed: the lines that are there count."""
    lines = encrypted([b"one", b"two", b"three"])
    kept = lines[: 1 + whole]
    if torn:
        kept.append(lines[1 + whole][:torn])
    found, said = decrypted(kept)
    assert found == [b"one", b"two", b"three"][:whole]
    assert len(said) == 1


def test_a_file_may_grow() -> None:
    """Whoever goes on chains on to the last line, also after a closing one."""
    first = encrypted([b"one", b"two"])
    again = cipher_from_header(first[0].rstrip(b"\n"), lambda _kind, _name: PASSPHRASE, "the file")
    again.resume(first[-1].rstrip(b"\n"), first[-2].rstrip(b"\n"))
    more = [again.encrypt(content, os.urandom) + b"\n" for content in (b"three", b"")]
    assert decrypted([*first, *more]) == ([b"one", b"two", b"three"], [])
    assert decrypted([*first, more[0]])[1]


@pytest.mark.parametrize("secret", [PASSPHRASE, KEY])
def test_a_wrong_secret_is_one_clear_error_without_a_secret_in_it(secret: Secret) -> None:
    """Found before any line is decrypted, and before any secret is repeated (Z4)."""
    wrong = Secret(secret.kind, b"w" * 32)
    with pytest.raises(SettingError, match=f"this {secret.kind} does not decrypt the file") as caught:
        decrypted(encrypted([b"one"], secret), wrong)
    assert CANARY not in f"{caught.value!r} {caught.value.remedy} {secret!r}"
    with pytest.raises(SettingError, match="is encrypted with a"):
        decrypted(encrypted([b"one"], secret), KEY if secret is PASSPHRASE else PASSPHRASE)


@pytest.mark.parametrize(
    "header",
    [
        b'{"sealed":"chronicle:3","with":"passphrase"}',
        b'{"sealed":["chronicle:2"]}',
        b'{"sealed":"chronicle:2"',
        b'{"sealed":"chronicle:2","with":"prayer","salt":"","proof":""}',
        b'{"sealed":"chronicle:2","with":"passphrase","n":1073741824,"r":8,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:2","with":"passphrase","n":65535,"r":8,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:2","with":"passphrase","n":"2","r":8,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:2","with":"passphrase","n":8388608,"r":1,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:2","with":"passphrase","n":65536,"r":1,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:2","with":"passphrase","n":2,"r":1,"p":8388608,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:2","with":"key","salt":"?","proof":"AA=="}',
        b'{"sealed":"chronicle:' + b"1" * 2000,
    ],
)
def test_a_header_of_another_kind_is_refused_before_any_work(header: bytes) -> None:
    """A forged cost must not keep us busy, and nobody is asked for a passphrase in vain."""

    def nobody(_kind: SecretKind, _name: str) -> Secret:
        raise AssertionError("asked")

    with pytest.raises(SettingError, match="the file, line 1: it is encrypted in a format"):
        cipher_from_header(header, nobody, "the file")


@given(st.binary(min_size=1, max_size=200), SECRETS)
def test_a_whole_content(content: bytes, secret: Secret) -> None:
    cost = CHEAP if secret.kind is SecretKind.PASSPHRASE else None
    whole = encrypt_whole(content, secret, os.urandom, cost)
    assert decrypt_whole(whole, lambda _kind, _name: secret, "the file") == content
    lines = whole.splitlines(True)
    for cut in (lines[:1], lines[:2], [*lines[:2], lines[2][:-1]]):
        with pytest.raises(SettingError):
            decrypt_whole(b"".join(cut), lambda _kind, _name: secret, "the file")
