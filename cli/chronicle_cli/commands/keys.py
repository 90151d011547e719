"""`chronicle keys`: create, list, check and lock the keys that open personal data; shows no private key."""

from __future__ import annotations

import os
import pwd
import re
import stat
from typing import Any, Final

import click

from chronicle.captures.sources import read_messages
from chronicle.core.body import parse
from chronicle.core.encryption import MAX_HEADER, is_encrypted
from chronicle.core.words import many
from chronicle.engine.job import Exit
from chronicle.errors import CannotDecrypt, InvalidMessage, KeyStoreError, SettingError, UnknownSigner
from chronicle.proca.keystore import SHOWN, KeyStore, add_key, change_lock
from chronicle.proca.sealed import open_personal_info
from chronicle_cli import report
from chronicle_cli.completion import files
from chronicle_cli.help import Command, write_examples
from chronicle_cli.passphrase import PassphraseSource

MAX_MESSAGE: Final = 16 * 1024 * 1024
KEY_SHAPED: Final = re.compile(r"[A-Za-z0-9_-]{43}=?")

EXAMPLES: Final = """
chronicle keys new keys.json
chronicle keys list keys.json
chronicle keys check keys.json --message captured.json
chronicle keys lock keys.json
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
    """Create, list, check and lock the keys that open personal data.

    FILE is the key store; it defaults to CHRONICLE_KEYS, else keys.json. It must be readable by its owner
    only (mode 600). Private keys never leave it. A locked store is decrypted with the passphrase in
    CHRONICLE_PASSPHRASE or in the file CHRONICLE_PASSPHRASE_FILE names (else you are prompted), or with the
    key in the file CHRONICLE_ENCRYPT_KEY_FILE names. If one of these is set, a store that is not locked is
    refused, unless CHRONICLE_ENCRYPT=false.
    """


@command.command("new", cls=Command, examples="chronicle keys new keys.json")
@store
def new(file: str) -> int:
    """Create a key pair, add it to the key store, print the public key.

    The store is created if it is missing (locked, if there is a passphrase or key for that), and existing
    keys stay: what was sealed for an old key is opened with the old key. FILE defaults to CHRONICLE_KEYS,
    else keys.json.
    """
    if inline(file):
        raise SettingError("a key can only be added to a file", "name the file: chronicle keys new keys.json")
    secrets = PassphraseSource(os.environ)
    public = add_key(file, secrets.unlock, secrets.lock, lock_new=secrets.encrypts)
    report.done(public)
    return Exit.DONE


@command.command("list", cls=Command, examples="chronicle keys list keys.json")
@store
def listing(file: str) -> int:
    """Print the public keys in the key store, one per line.

    FILE defaults to CHRONICLE_KEYS, else keys.json.
    """
    for public in KeyStore.load(file, PassphraseSource(os.environ).unlock).publics():
        report.say(public)
    return Exit.DONE


@command.command("check", cls=Command, examples="chronicle keys check keys.json --message captured.json")
@store
@click.option(
    "--message", metavar="FILE", shell_complete=files, envvar="CHRONICLE_KEYS_MESSAGE", show_envvar=True,
    help="A message, plain JSON or a record: can this store open its personal data? The data is not shown.",
)  # fmt: skip
@click.option(
    "--sign-key", "sign_keys", multiple=True, metavar="PUBLIC", envvar="CHRONICLE_SIGN_KEY", show_envvar=True,
    help="A public key of the server, as given to consume: is the message sealed with a pinned one?",
)  # fmt: skip
def check(file: str, message: str | None, sign_keys: tuple[str, ...]) -> int:
    """Check that the key store can be used: mode, owner, keys, pinned sign keys.

    FILE defaults to CHRONICLE_KEYS, else keys.json. Exit code 2 if the store cannot be used, 1 if
    it cannot open the message given with --message.
    """
    secrets = PassphraseSource(os.environ)
    keys = KeyStore.load(file, secrets.unlock, sign_keys)
    if inline(file):
        report.say("key store: given as text, not as a file")
    else:
        facts = os.stat(file, follow_symlinks=False)
        locked = ", locked" if is_locked(file) else ""
        mode = f"{stat.S_IMODE(facts.st_mode):o}"
        report.say(f"key store: {file}, mode {mode}, owner {owner(facts.st_uid)}{locked}")
    report.say(f"keys: {len(keys)}")
    for public in keys.publics():
        report.say(f"  {public}  valid")
    for signer in keys.signers():
        report.say(f"  {signer}  pinned sign key")
    if not keys.publics():
        raise KeyStoreError("the key store is empty", "create a key with `chronicle keys new`")
    return can_open(message, keys, secrets) if message else Exit.DONE


@command.command("lock", cls=Command, examples="chronicle keys lock keys.json")
@store
def lock(file: str) -> int:
    """Lock the key store: encrypt it with a passphrase or a key.

    FILE is replaced atomically. Every command still accepts it with --keys, and prompts for the passphrase
    or takes it from CHRONICLE_PASSPHRASE_FILE or CHRONICLE_PASSPHRASE. With CHRONICLE_ENCRYPT_KEY_FILE it is
    encrypted with the key in that file: 32 bytes in base64. If you lose the secret, the keys cannot be
    recovered. FILE defaults to CHRONICLE_KEYS, else keys.json.
    """
    refuse_text(file)
    if is_locked(file):
        raise SettingError(f"{file} is already locked", "unlock it first to change its passphrase")
    secrets = PassphraseSource(os.environ)
    count = change_lock(file, secrets.lock, lambda content, _name: content)
    report.done(f"{file} is locked: {keys_of(count)}")
    return Exit.DONE


@command.command("unlock", cls=Command, examples="chronicle keys unlock keys.json")
@store
def unlock(file: str) -> int:
    """Unlock the key store: write it as plain JSON again.

    FILE defaults to CHRONICLE_KEYS, else keys.json.
    """
    refuse_text(file)
    if not is_locked(file):
        raise SettingError(f"{file} is not locked", "there is nothing to do")
    secrets = PassphraseSource(os.environ)
    count = change_lock(file, lambda content: secrets.unlock(content, file), secrets.unlock)
    report.done(f"{file} is unlocked: {keys_of(count)}")
    return Exit.DONE


def is_locked(file: str) -> bool:
    """Whether a key store is locked; one that cannot be read is reported when it is loaded."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            return is_encrypted(opened.read(MAX_HEADER))
    except (OSError, ValueError):
        return False


def refuse_text(file: str) -> None:
    if inline(file):
        raise SettingError("only a file can be locked", "name the file: chronicle keys lock keys.json")


def keys_of(count: int) -> str:
    return many(count, "key")


def can_open(path: str, keys: KeyStore, secrets: PassphraseSource) -> int:
    """Say whether the store opens the personal data of the first message in a file, and with which key."""
    delivery = next(read_messages([path], "check", ask=secrets.to_decrypt), None)
    if delivery is None:
        raise SettingError(f"there is no message in {path}", "name a file that contains one")
    info = sealed_in(delivery.body)
    if not info:
        report.say("message: its personal data is not sealed")
        return Exit.DONE
    name = key_name(info)
    try:
        opened = open_personal_info(info, keys)
    except UnknownSigner:
        signer = key_name(info, "signKey")
        report.say(f"message: no, it is sealed with key {signer}, which is not a pinned sign key")
        return Exit.FATAL
    except CannotDecrypt:
        report.say(f"message: no, its personal data is damaged or not sealed for key {name}")
        return Exit.FATAL
    if opened is None:
        report.say(f"message: no, it is sealed for key {name}, which is not in the store")
        return Exit.FATAL
    report.say(f"message: yes, key {name} opens its personal data")
    return Exit.DONE


def sealed_in(body: bytes) -> Any:
    """The sealed part of an action or an event, if there is one."""
    try:
        message = parse(body, MAX_MESSAGE)
    except InvalidMessage as error:
        raise SettingError(
            f"the message cannot be read: {error}", "name a file that contains a message"
        ) from None
    if not isinstance(message, dict):
        raise SettingError("the message is not a JSON object", "name a file that contains a message")
    supporter = message.get("supporter")
    inner = supporter.get("personalInfo") if isinstance(supporter, dict) else None
    return message.get("personalInfo") or inner


def key_name(info: Any, which: str = "encryptKey") -> str:
    """The beginning of a public key a message names; anything that is not a key is not shown."""
    key = info.get(which) if isinstance(info, dict) else None
    public = key.get("public") if isinstance(key, dict) else None
    if isinstance(public, str) and KEY_SHAPED.fullmatch(public):
        return f"{public[:SHOWN]}…"
    return "(none named)"


def inline(source: str) -> bool:
    return source.lstrip().startswith("{")


def owner(uid: int) -> str:
    """The owner's name, or the number if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
