"""Sealed files: what goes in comes out, and whatever is done to them in between is found."""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.sealing import (
    Cost,
    Means,
    Secret,
    is_sealed,
    known_seal,
    new_seal,
    open_lines,
    open_whole,
    seal_whole,
)
from chronicle.errors import SettingError

# As little work as scrypt allows: what is shown here does not depend on how dear a guess is.
CHEAP: Final = Cost(n=2, r=1, p=1)
CANARY: Final = "hunter22-canary"
PASSPHRASE: Final = Secret(Means.PASSPHRASE, CANARY.encode())
KEY: Final = Secret(Means.KEY, b"k" * 32)
CONTENTS: Final = st.lists(st.binary(min_size=1, max_size=60), max_size=6)
SECRETS: Final = st.sampled_from([PASSPHRASE, KEY])


def sealed(contents: list[bytes], secret: Secret = PASSPHRASE, *, closed: bool = True) -> list[bytes]:
    """A sealed file's lines, each with its end."""
    seal = new_seal(secret, os.urandom, CHEAP if secret.means is Means.PASSPHRASE else None)
    lines = [seal.header, *(seal.close(content, os.urandom) for content in contents)]
    lines += [seal.close(b"", os.urandom)] if closed else []
    return [line + b"\n" for line in lines]


def opened(lines: list[bytes], secret: Secret = PASSPHRASE) -> tuple[list[bytes], list[str]]:
    """The contents, and what was said about the end."""
    said: list[str] = []
    found = list(open_lines(lines, lambda _means, _name: secret, "the file", said.append))
    assert [number for number, _ in found] == sorted(number for number, _ in found)
    return [content for _, content in found], said


@given(CONTENTS, SECRETS)
def test_what_was_sealed_is_opened(contents: list[bytes], secret: Secret) -> None:
    lines = sealed(contents, secret)
    assert is_sealed(lines[0])
    assert opened(lines, secret) == (contents, [])


@given(CONTENTS.filter(bool), SECRETS)
def test_nothing_of_the_content_shows(contents: list[bytes], secret: Secret) -> None:
    joined = b"".join(sealed(contents, secret)[1:])
    assert not any(content in joined for content in contents if len(content) > 8)


@given(st.data())
def test_a_changed_byte_is_found(data: st.DataObject) -> None:
    """Any byte of the file, to any other value: an error, or at the very end a torn line that is told."""
    contents = data.draw(CONTENTS)
    original = b"".join(sealed(contents))
    at = data.draw(st.integers(0, len(original) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != original[at]))
    spoilt = original[:at] + bytes([other]) + original[at + 1 :]
    try:
        found, said = opened(spoilt.splitlines(True))
    except SettingError:
        return
    assert said
    assert found == contents[: len(found)]


@given(st.data())
def test_moved_dropped_and_doubled_lines_are_found(data: st.DataObject) -> None:
    lines = sealed([b"one", b"two", b"three", b"four"])
    here = data.draw(st.integers(1, len(lines) - 2))
    there = data.draw(st.integers(1, len(lines) - 1).filter(lambda number: number != here))
    swapped = lines.copy()
    swapped[here], swapped[there] = lines[there], lines[here]
    for spoilt in (swapped, lines[:here] + lines[here + 1 :], [*lines[:here], lines[here], *lines[here:]]):
        with pytest.raises(SettingError, match="the file, line"):
            opened(spoilt)


def test_a_line_of_another_file_is_found() -> None:
    ours, theirs = sealed([b"one", b"two"]), sealed([b"one", b"two"])
    with pytest.raises(SettingError, match="line 2"):
        opened([ours[0], theirs[1], *ours[2:]])


@given(st.integers(1, 3), st.integers(0, 20))
def test_a_cut_end_is_read_as_far_as_it_goes_and_told(whole: int, torn: int) -> None:
    """A writer that was killed: the lines that are there count."""
    lines = sealed([b"one", b"two", b"three"])
    kept = lines[: 1 + whole]
    if torn:
        kept.append(lines[1 + whole][:torn])
    found, said = opened(kept)
    assert found == [b"one", b"two", b"three"][:whole]
    assert len(said) == 1


def test_a_file_may_grow() -> None:
    """Whoever goes on counts on from the last line, also after a closing one."""
    first = sealed([b"one", b"two"])
    again = known_seal(first[0].rstrip(b"\n"), lambda _means, _name: PASSPHRASE, "the file")
    again.skip(len(first) - 1)
    more = [again.close(content, os.urandom) + b"\n" for content in (b"three", b"")]
    assert opened([*first, *more]) == ([b"one", b"two", b"three"], [])
    assert opened([*first, more[0]])[1]


@pytest.mark.parametrize("secret", [PASSPHRASE, KEY])
def test_a_wrong_secret_is_one_clear_error_without_a_secret_in_it(secret: Secret) -> None:
    """Found before any line is opened, and before any secret is repeated (Z4)."""
    wrong = Secret(secret.means, b"w" * 32)
    with pytest.raises(SettingError, match=f"this {secret.means} does not open the file") as caught:
        opened(sealed([b"one"], secret), wrong)
    assert CANARY not in f"{caught.value!r} {caught.value.remedy} {secret!r}"
    with pytest.raises(SettingError, match="is sealed with a"):
        opened(sealed([b"one"], secret), KEY if secret is PASSPHRASE else PASSPHRASE)


@pytest.mark.parametrize(
    "header",
    [
        b'{"sealed":"chronicle:2","with":"passphrase"}',
        b'{"sealed":"chronicle:1"',
        b'{"sealed":"chronicle:1","with":"prayer","salt":"","proof":""}',
        b'{"sealed":"chronicle:1","with":"passphrase","n":1073741824,"r":8,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:1","with":"passphrase","n":65535,"r":8,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:1","with":"passphrase","n":"2","r":8,"p":1,"salt":"AA==","proof":"AA=="}',
        b'{"sealed":"chronicle:1","with":"key","salt":"?","proof":"AA=="}',
        b'{"sealed":"chronicle:' + b"1" * 2000,
    ],
)
def test_a_header_of_another_kind_is_refused_before_any_work(header: bytes) -> None:
    """A forged cost must not keep us busy, and nobody is asked for a passphrase in vain."""

    def nobody(_means: Means, _name: str) -> Secret:
        raise AssertionError("asked")

    with pytest.raises(SettingError, match="the file is sealed in a way"):
        known_seal(header, nobody, "the file")


@given(st.binary(min_size=1, max_size=200), SECRETS)
def test_a_whole_content(content: bytes, secret: Secret) -> None:
    cost = CHEAP if secret.means is Means.PASSPHRASE else None
    whole = seal_whole(content, secret, os.urandom, cost)
    assert open_whole(whole, lambda _means, _name: secret, "the file") == content
    lines = whole.splitlines(True)
    for cut in (lines[:1], lines[:2], [*lines[:2], lines[2][:-1]]):
        with pytest.raises(SettingError):
            open_whole(b"".join(cut), lambda _means, _name: secret, "the file")
