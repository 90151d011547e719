"""`chronicle keys`: make, list and check the keys that open personal data. No private key is ever printed."""

from __future__ import annotations

import os
import pwd
import re
import stat
from typing import Any, Final

import click

from chronicle.core.body import parse
from chronicle.errors import CannotDecrypt, InvalidMessage, KeyStoreError, SettingError
from chronicle.proca.keystore import KeyStore, add_key
from chronicle.proca.sealed import open_personal_info
from chronicle.runtime.job import Exit
from chronicle.runtime.sources import read_messages
from chronicle_cli.help import Command, write_examples

MAX_MESSAGE: Final = 16 * 1024 * 1024
KEY_SHAPED: Final = re.compile(r"[A-Za-z0-9_-]{43}=?")
SHOWN: Final = 8  # characters of a public key that tell it from the others

EXAMPLES: Final = """
chronicle keys new keys.json
chronicle keys list keys.json
chronicle keys check keys.json --message captured.json
"""

store = click.argument(
    "file", default="keys.json", envvar="CHRONICLE_KEYS", metavar="[FILE]", type=click.Path(allow_dash=False)
)


class KeysGroup(click.Group):
    """A group with examples in its help."""

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(EXAMPLES, formatter)


@click.group(cls=KeysGroup)
def command() -> None:
    """Make, list and check the keys that open personal data.

    FILE is the key store: CHRONICLE_KEYS if it is not named, else keys.json. Only its owner may read it
    (mode 600). Private keys never leave it.
    """


@command.command("new", cls=Command, examples="chronicle keys new keys.json")
@store
def new(file: str) -> int:
    """Make a pair of keys, add it to the key store, print the public key.

    The store is created if it is missing, and keys that are in it stay: what was sealed for an old key is
    opened with the old key. FILE is CHRONICLE_KEYS if it is not named, else keys.json.
    """
    if inline(file):
        raise SettingError("a key can only be added to a file", "name the file: chronicle keys new keys.json")
    public = add_key(file)
    click.echo(public)
    return Exit.DONE


@command.command("list", cls=Command, examples="chronicle keys list keys.json")
@store
def listing(file: str) -> int:
    """Print the public keys in the key store, one per line.

    FILE is CHRONICLE_KEYS if it is not named, else keys.json.
    """
    for public in KeyStore.load(file).publics():
        click.echo(public)
    return Exit.DONE


@command.command("check", cls=Command, examples="chronicle keys check keys.json --message captured.json")
@store
@click.option(
    "--message", metavar="FILE", envvar="CHRONICLE_KEYS_MESSAGE", show_envvar=True,
    help="A message, plain JSON or a record: can this store open its personal data? The data is not shown.",
)  # fmt: skip
def check(file: str, message: str | None) -> int:
    """Say whether the key store can be used: mode, owner, keys.

    FILE is CHRONICLE_KEYS if it is not named, else keys.json. Exit code 2 if the store cannot be used, 1 if
    it cannot open the message given with --message.
    """
    keys = KeyStore.load(file)
    if inline(file):
        click.echo("key store: given as text, not as a file")
    else:
        facts = os.stat(file, follow_symlinks=False)
        click.echo(f"key store: {file}, mode {stat.S_IMODE(facts.st_mode):o}, owner {owner(facts.st_uid)}")
    click.echo(f"keys: {len(keys)}")
    for public in keys.publics():
        click.echo(f"  {public}  valid")
    if not keys.publics():
        raise KeyStoreError("there is no key in the store", "make one with `chronicle keys new`")
    return can_open(message, keys) if message else Exit.DONE


def can_open(path: str, keys: KeyStore) -> int:
    """Say whether the store opens the personal data of the first message in a file, and with which key."""
    delivery = next(read_messages([path], "check"), None)
    if delivery is None:
        raise SettingError(f"there is no message in {path}", "name a file that holds one")
    info = sealed_in(delivery.body)
    if not info:
        click.echo("message: its personal data is not sealed")
        return Exit.DONE
    name = key_name(info)
    try:
        opened = open_personal_info(info, keys)
    except CannotDecrypt:
        click.echo(f"message: no, its personal data is damaged or not sealed for key {name}")
        return Exit.FATAL
    if opened is None:
        click.echo(f"message: no, it is sealed for key {name}, which is not in the store")
        return Exit.FATAL
    click.echo(f"message: yes, key {name} opens its personal data")
    return Exit.DONE


def sealed_in(body: bytes) -> Any:
    """The sealed part of an action or an event, if there is one."""
    try:
        message = parse(body, MAX_MESSAGE)
    except InvalidMessage as error:
        raise SettingError(
            f"the message cannot be read: {error}", "name a file that holds a message"
        ) from None
    if not isinstance(message, dict):
        raise SettingError("the message is not a JSON object", "name a file that holds a message")
    supporter = message.get("supporter")
    inner = supporter.get("personalInfo") if isinstance(supporter, dict) else None
    return message.get("personalInfo") or inner


def key_name(info: Any) -> str:
    """The beginning of the public key a message names; what is no key is not repeated."""
    key = info.get("encryptKey") if isinstance(info, dict) else None
    public = key.get("public") if isinstance(key, dict) else None
    if isinstance(public, str) and KEY_SHAPED.fullmatch(public):
        return f"{public[:SHOWN]}…"
    return "(none named)"


def inline(source: str) -> bool:
    return source.lstrip().startswith("{")


def owner(uid: int) -> str:
    """The owner's name, or the number where nobody has it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
