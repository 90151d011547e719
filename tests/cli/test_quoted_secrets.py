"""Foreign code that quotes what it can read: nothing of it is printed (Z4, Z5), wherever the code fails."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import pytest

from support import samples
from support.cli import Said, run

PASSWORD: Final = "hunter22/canary"
PASSPHRASE: Final = "horse-battery-canary"
TOKEN: Final = "crm-token-canary"
FROM_FILE: Final = "from-a-file-canary"
NAME: Final = "Lovelace"
STREET: Final = "Threadneedle Street"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    message = samples.message("action-plain.json")
    message["contact"] |= {"lastName": NAME, "address": {"street": STREET}}
    (tmp_path / "m.json").write_text(json.dumps(message))
    for name in ("passphrase", "password"):
        (tmp_path / name).write_text(f"{FROM_FILE}-{name}\n")
    return tmp_path


def secrets(folder: Path) -> dict[str, str]:
    return {
        "CHRONICLE_URL": "amqps://me@broker.test/live",
        "CHRONICLE_PASSWORD": PASSWORD,
        "CHRONICLE_PASSPHRASE": PASSPHRASE,
        "CHRONICLE_KEYS": samples.body("keys.json").decode(),
        "CHRONICLE_PASSPHRASE_FILE": str(folder / "passphrase"),
        "CHRONICLE_PASSWORD_FILE": str(folder / "password"),
        "CRM_TOKEN": TOKEN,
        "CHRONICLE_ENCRYPT": "false",  # there is a passphrase, and the messages are plain all the same
    }


def told(folder: Path, syncer: str, *args: str) -> Said:
    (folder / "crm.py").write_text(syncer)
    command = ("replay", "m.json", "--syncer", "crm:sync", "--log-format", "json", *args)
    return run(*command, cwd=folder, env=secrets(folder))


def leaks(said: Said) -> list[str]:
    privates = [entry["private"] for entry in samples.message("keys.json").values()]
    printed = (said.out + said.err).lower()
    basic = b64encode(f"me:{PASSWORD}".encode()).decode()
    return [
        secret
        for secret in (PASSWORD, PASSPHRASE, TOKEN, FROM_FILE, basic, basic[6:14], *privates)
        if secret.lower() in printed
    ]


QUOTES: Final = """
import base64, json, os
def everything():
    basic = base64.b64encode(("me:" + os.environ["CHRONICLE_PASSWORD"]).encode()).decode()
    files = [open(os.environ[f"CHRONICLE_{name}_FILE"]).read() for name in ("PASSWORD", "PASSPHRASE")]
    stores = [entry["private"] for entry in json.loads(os.environ["CHRONICLE_KEYS"]).values()]
    names = ("CHRONICLE_PASSWORD", "CHRONICLE_PASSPHRASE", "CRM_TOKEN")
    return " ".join([basic, *files, *stores, *(os.environ[name] for name in names)])
def piece(number):
    return ValueError("refused: " + everything().split()[number])
"""
FAILURES: Final = {
    "the import": "raise piece({n})",
    "the import, as a class of its own": "raise type(everything().split()[{n}], (Exception,), {{}})()",
    "an import of an import": "import importlib\nimportlib.import_module(everything().split()[{n}])",
    "the start": "class sync:\n def __init__(self): raise piece({n})\n"
    " def __call__(self, message): return True",
    "entering": "class sync:\n def __enter__(self): raise piece({n})\n def __exit__(self, *_): ...\n"
    " def __call__(self, message): return True",
    "a message": "def sync(message): raise piece({n})",
    "logging": "import logging\ndef sync(message):\n logging.error(everything().split()[{n}]); return True",
}


@pytest.mark.parametrize(
    ("failure", "number"),
    [(failure, 0) for failure in FAILURES]
    + [(failure, number) for failure in ("the import", "a message") for number in (1, 3, -1, -2, -3)],
)
def test_z4_no_secret_a_syncer_quotes_is_printed(folder: Path, failure: str, number: int) -> None:
    """One that failed to import printed the broker's password, the passphrase and the CRM's token."""
    said = told(folder, QUOTES + FAILURES[failure].format(n=number))
    assert said.code == (0 if failure == "logging" else 1 if failure == "a message" else 2), said.err
    assert "crm" in said.err
    assert leaks(said) == []


def test_z4_a_module_that_cannot_be_parsed_shows_where_and_no_secret(folder: Path) -> None:
    said = told(folder, f"def sync(message):\n    return True\ntoken = '{TOKEN}' oops\n")
    assert said.code == 2
    assert 'crm.py", line 3' in said.err
    assert leaks(said) == []


# Where nothing is known of the message that an error is about; each of FAILS raises.
UNKNOWN: Final = {
    "a thread": """
import threading
def sync(message):
    for fail in FAILS:
        thread = threading.Thread(target=lambda: fail(message["contact"]))
        thread.start(); thread.join()
    return True
""",
    "a task": """
import asyncio
async def later(fail, contact): fail(contact)
async def sync(message):
    for fail in FAILS:
        asyncio.get_running_loop().create_task(later(fail, message["contact"]))
        await asyncio.sleep(0.01)
    return True
""",
    "a callback": """
import asyncio
async def sync(message):
    for fail in FAILS:
        asyncio.get_running_loop().call_soon(fail, message["contact"])
        await asyncio.sleep(0.01)
    return True
""",
    "a finalizer": """
class Dying:
    def __init__(self, fail, contact): self.fail, self.contact = fail, contact
    def __del__(self): self.fail(self.contact)
def sync(message):
    for fail in FAILS:
        Dying(fail, message["contact"])
    return True
""",
    "leaving": """
from contextlib import ExitStack
class sync(ExitStack):
    def __call__(self, message):
        for fail in FAILS:
            self.callback(fail, message["contact"])
        return True
""",
    "logger.exception": """
import logging
def sync(message):
    for fail in FAILS:
        try:
            fail(message["contact"])
        except BaseException as error:
            logging.getLogger("crm").exception("failed")
            logging.getLogger("crm").exception(f"failed: {error}")
            logging.getLogger("crm").exception("failed: %s", error)
    return True
""",
}
RAISES: Final = {
    "OSError": "open('/nowhere/' + contact['lastName'] + contact['address']['street'])",
    "OSError with words of its own": "raise OSError(2, contact['lastName'], contact['address']['street'])",
    "NameError": "eval(contact['lastName'])",
    "AttributeError": "getattr('', contact['lastName'] + contact['address']['street'])",
    "ImportError": "__import__(contact['lastName'])",
    "SyntaxError": "eval(contact['address']['street'])",
    "MemoryError": "raise MemoryError(contact['lastName'])",
    "a class named after it": "raise type(contact['lastName'], (LookupError,), {})()",
    "a function named after it": "exec(f\"def {contact['lastName']}(): 1/0\\n{contact['lastName']}()\")",
    "a file named after it": "exec(compile('1/0', contact['address']['street'], 'exec'))",
    "a line that quotes it": "exec(compile(remembered(contact), '<made of it>', 'exec'))",
    "a note": "error = LookupError(); error.add_note(contact['lastName']); raise error",
    "a group": "raise ExceptionGroup(contact['lastName'], [NameError(contact['address']['street'])])",
    "a cause": "raise OSError(5, 'x') from AttributeError(contact['lastName'])",
}
REMEMBERED: Final = """
import linecache
def remembered(contact):
    source = f"1/0  # {contact['lastName']}"
    linecache.cache["<made of it>"] = (len(source), None, [source], "<made of it>")
    return source
FAILS = []
"""
# The first of these ends the run.
ONCE: Final = ("a task", "a callback", "leaving")


@pytest.mark.parametrize("where", UNKNOWN)
def test_z5_an_error_outside_any_message_shows_places_and_no_values(folder: Path, where: str) -> None:
    """A name and a street were logged: the texts of some errors were trusted, and so were names."""
    runs = [[raises] for raises in list(RAISES.values())[1:8]] if where in ONCE else [[*RAISES.values()]]
    for run_of in runs:
        fails = [f"def fail(contact):\n    {raises}\nFAILS.append(fail)\n" for raises in run_of]
        said = told(folder, REMEMBERED + "".join(fails) + UNKNOWN[where])
        lines: list[dict[str, Any]] = [json.loads(line) for line in said.err.splitlines()]
        traces = [line["trace"] for line in lines if line.get("trace")]
        assert len(traces) >= len(run_of), said.err
        assert all('crm.py", line' in trace for trace in traces), traces
        assert NAME.lower() not in (said.out + said.err).lower()
        assert STREET.split()[0].lower() not in (said.out + said.err).lower()
        if RAISES["OSError"] in run_of:
            # Of an OSError the system's own words are shown.
            assert "FileNotFoundError: No such file or directory" in said.err
