"""The frame around the commands: `.env`, precedence, help, errors and exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from chronicle_cli.main import COMMANDS
from support.cli import commands, run, variables

CANARY = "hunter22-canary"
HEAVY = {"pika", "rich", "nacl", "confluent_kafka", "redis", "orjson", "sqlite3", "dotenv", "asyncio"}
# A command that ends in a given way, plugged in where the real ones are.
PLUGGED = """
import sys
from chronicle_cli import main
main.COMMANDS["boom"] = ("boom:command", "")
sys.path.insert(0, ".")
main.main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with one message in it, below another folder."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "m.json").write_text("{}")
    return here


def write_env(folder: Path, text: str, mode: int = 0o600) -> None:
    (folder / ".env").write_text(text)
    (folder / ".env").chmod(mode)


def dry(folder: Path, *args: str, **environ: str) -> str:
    """The queue a dry publication would go to."""
    said = run("publish", "--dry-run", *args, "m.json", cwd=folder, env=environ)
    assert said.code == 0, said.err
    return said.out.removeprefix("1 message for ").removesuffix("; nothing was sent\n")


def test_precedence(folder: Path) -> None:
    """Settings: flag, CHRONICLE_*, `.env` here, PROCA_*."""
    everything = {"CHRONICLE_QUEUE": "environment", "PROCA_QUEUE": "proca"}
    write_env(folder, "CHRONICLE_QUEUE=file\nPROCA_QUEUE=file-proca\n")
    assert dry(folder, "--queue", "flag", **everything) == "flag"
    assert dry(folder, **everything) == "environment"
    assert dry(folder, PROCA_QUEUE="proca") == "file"
    write_env(folder, "PROCA_QUEUE=file-proca\n")
    assert dry(folder, PROCA_QUEUE="proca") == "proca"
    assert dry(folder) == "file-proca"


def test_a_parents_env_file_is_ignored(folder: Path) -> None:
    """Z13."""
    write_env(folder.parent, "CHRONICLE_QUEUE=parent\n")
    said = run("publish", "--dry-run", "m.json", cwd=folder)
    assert said.code == 2
    assert "--queue" in said.problems[0]


def test_an_env_file_everybody_can_read_is_refused(folder: Path) -> None:
    """Z13: exit 2, the remedy, and nothing of its content."""
    write_env(folder, f"CHRONICLE_QUEUE={CANARY}\n", 0o644)
    said = run("publish", "--dry-run", "m.json", cwd=folder)
    assert said.code == 2
    assert "chmod 600 .env" in said.err
    assert CANARY not in said.out + said.err


def test_an_env_file_is_taken_as_it_stands(folder: Path) -> None:
    """No interpolation: a `$` in a password is a `$`."""
    write_env(folder, "CHRONICLE_QUEUE=a$HOME${HOME}b\n")
    assert dry(folder) == "a$HOME${HOME}b"


def test_a_slip_in_an_env_file_is_named(folder: Path) -> None:
    """D-9: one warning, with the name that was meant; the environment in general is not ours to judge."""
    write_env(folder, f"CHRONICLE_QUEU={CANARY}\nMY_OWN=1\nCHRONICLE_CSV_FILE=x\nCHRONICLE_XYZZY=1\n")
    said = run(
        "publish", "--dry-run", "--queue", "q", "m.json", cwd=folder, env={"CHRONICLE_QEUE": "elsewhere"}
    )
    told = "chronicle: warning: "
    slips = [line.removeprefix(told) for line in said.err.splitlines() if "unknown variable" in line]
    assert said.code == 0
    assert slips == [
        "unknown variable CHRONICLE_QEUE; did you mean CHRONICLE_QUEUE?",
        ".env: unknown variable CHRONICLE_QUEU; did you mean CHRONICLE_QUEUE?",
        ".env: unknown variable CHRONICLE_XYZZY",
    ]
    assert CANARY not in said.err


def test_a_misspelt_variable_of_the_environment_is_noticed(tmp_path: Path) -> None:
    """As a misspelt flag is; what resembles none may be somebody else's."""
    env = {"CHRONICLE_CONCURENCY": "4", "CHRONICLE_SERVICE_HOST": "10.0.0.1", "CHRONICLE_XYZZY": "1"}
    said = run("dlq", "list", "--queue", "q", "--url", "local:q.db", cwd=tmp_path, env=env)
    slips = [line for line in said.err.splitlines() if "unknown variable" in line]
    slip = "unknown variable CHRONICLE_CONCURENCY; did you mean CHRONICLE_CONCURRENCY?"
    assert slips == [f"chronicle: warning: {slip}"]


@pytest.mark.parametrize(
    "line", ["CHRONICLE_PASSWORD hunter22-canary", "A='hunter22-canary", "=hunter22-canary"]
)
def test_a_line_of_an_env_file_that_cannot_be_read(folder: Path, line: str) -> None:
    """D-9, Z4: the number of the line, and not the line."""
    write_env(folder, f"# ours\nCHRONICLE_QUEUE=q\n\n\n{line}\nB=1\n")
    said = run("publish", "--dry-run", "m.json", cwd=folder)
    assert (said.code, said.problems) == (2, ["chronicle: '.env', line 5 cannot be read"])
    assert CANARY not in said.err


def test_another_env_file(folder: Path) -> None:
    write_env(folder, "CHRONICLE_QUEUE=usual\n")
    (folder / "other.env").write_text("CHRONICLE_QUEUE=other\n")
    (folder / "other.env").chmod(0o600)
    said = run("--env-file", "other.env", "publish", "--dry-run", "m.json", cwd=folder)
    assert said.out.startswith("1 message for other;")
    missing = run("--env-file", "none.env", "publish", "--dry-run", "m.json", cwd=folder)
    assert (missing.code, len(missing.problems)) == (2, 1)


def test_a_virtual_environment_called_env_is_no_env_file(folder: Path) -> None:
    (folder / ".env").mkdir()
    assert dry(folder, "--queue", "q") == "q"


def test_without_a_url_the_first_line_says_which_queue(folder: Path) -> None:
    """design.md §5."""
    said = run("publish", "--queue", "q", "m.json", cwd=folder)
    assert said.code == 0
    assert said.err.splitlines()[0].endswith("using the embedded queue in this folder, local:chronicle.db")
    assert (folder / "chronicle.db").exists()


@pytest.mark.parametrize(
    ("args", "environ"),
    [
        (["--url", f"amqp://u:{CANARY}@127.0.0.1:1/"], {}),
        ([], {"CHRONICLE_URL": f"amqp://u:{CANARY}@127.0.0.1:1/"}),
        (["--url", "amqp://u@127.0.0.1:1/"], {"CHRONICLE_PASSWORD": CANARY}),
        ([], {"PROCA_URL": "amqp://127.0.0.1:1/", "PROCA_USERNAME": "u", "PROCA_PASSWORD": CANARY}),
        (["--url", f"amqp://u:{CANARY}#@127.0.0.1:1/"], {}),
        (["--url", f"amqp://u:{CANARY}@127.0.0.1:x/"], {}),
        (["--url", f"http://u:{CANARY}@127.0.0.1:1/"], {}),
        (["--url", f"amqp://127.0.0.1:1/?password={CANARY}"], {}),
        (["--urll", f"amqp://u:{CANARY}@127.0.0.1:1/"], {}),
        (["--set", f"sasl.password={CANARY}"], {"CHRONICLE_URL": "amqp://127.0.0.1:1/"}),
    ],
)
def test_secrets_never_show(folder: Path, args: list[str], environ: dict[str, str]) -> None:
    """Z3, Z4: a canary in every place a password may come from, in failures of every kind."""
    said = run(
        "publish", "--queue", "q", "--startup-timeout", "10ms", *args, "m.json", cwd=folder, env=environ
    )
    assert said.code in (2, 3)
    assert said.problems
    assert CANARY not in said.out + said.err
    assert "Traceback" not in said.err


def test_an_unreachable_broker_comes_with_what_to_look_at(folder: Path) -> None:
    """D-9: not one that is a file, which is always reachable."""
    args = ("publish", "--queue", "q", "--startup-timeout", "10ms", "m.json")
    said = run(*args, "--url", "amqp://u:p@127.0.0.1:1/", cwd=folder)
    assert said.code == 3
    assert "  remedy: check that it is running, and the host and port in the URL\n" in said.err


def test_a_password_on_the_command_line_is_warned_about(folder: Path) -> None:
    """Z3; one that came by a variable is where it should be."""
    url = f"amqp://u:{CANARY}@127.0.0.1:1/"
    args = ("publish", "--queue", "q", "--startup-timeout", "10ms")
    typed = run(*args, "--url", url, "m.json", cwd=folder)
    given = run(*args, "m.json", cwd=folder, env={"CHRONICLE_URL": url})
    assert "password on the command line" in typed.err
    assert "password on the command line" not in given.err
    assert typed.code == given.code == 3


def test_wrong_use_is_one_line_and_a_hint(folder: Path) -> None:
    """X6: exit 2."""
    for args in (["frobnicate"], ["publish", "--frobnicate"], ["publish", "m.json"], ["publish", "--queue"]):
        said = run(*args, cwd=folder)
        assert (said.code, said.out, len(said.problems)) == (2, "", 1), args
        assert said.err.splitlines()[-1].endswith("--help")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (2, "raise SettingError('the problem', 'the remedy')"),
        (2, "raise BrokerRefused('the problem', 'the remedy')"),
        (2, "raise SyncerError('the problem', 'the remedy', 'File \"theirs.py\", line 1')"),
        (3, "raise BrokerUnreachable('the problem')"),
        (1, "raise InvalidMessage('the problem')"),
        (4, "raise KeyboardInterrupt"),
        (7, "return 7"),
        (0, "return None"),
    ],
)
def test_exit_codes(folder: Path, code: int, line: str) -> None:
    """X6: one test per code that the frame decides."""
    (folder / "boom.py").write_text(
        f"import click\nfrom chronicle.errors import *\n@click.command\ndef command():\n    {line}\n"
    )
    said = run("boom", cwd=folder, program=PLUGGED)
    assert said.code == code, said.err
    assert "Traceback" not in said.err
    if "the problem" in line:
        assert said.problems == ["chronicle: the problem"]
    if "the remedy" in line:
        assert said.err.splitlines()[-1] == "  remedy: the remedy"
    if "theirs.py" in line:
        assert said.err.splitlines()[0] == 'File "theirs.py", line 1'


def test_a_defect_shows_where_and_no_values(folder: Path) -> None:
    """Z4, Z5: exit 1, a traceback without locals and without secrets."""
    (folder / "boom.py").write_text(
        "import click\n@click.command\ndef command():\n"
        f"    secret = {CANARY.split('-')[0]!r} + '-canary'\n"
        "    raise RuntimeError(f'amqp://u:{secret}@h/ and password={secret}')\n"
    )
    said = run("boom", cwd=folder, program=PLUGGED)
    assert said.code == 1
    assert "boom.py" in said.err
    assert "RuntimeError" in said.err
    assert CANARY not in said.err


def test_too_few_descriptors_are_no_defect_of_ours(folder: Path) -> None:
    """D-9: the system's limit and how to raise it; the message stays where it is."""
    (folder / "s.py").write_text("def sync(message):\n    return True\n")
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))\n"
    program = limited + "from chronicle_cli.main import main; main()"
    assert run("publish", "--queue", "q", "m.json", cwd=folder).code == 0
    args = ("consume", "--queue", "q", "--schema", "json", "--syncer", "s.py:sync", "--until-empty")
    said = run(*args, cwd=folder, program=program)
    assert said.code == 1
    assert said.problems[-1].startswith("chronicle: Too many open files: ")
    assert "remedy: raise the limit (ulimit -n" in said.err
    assert "Traceback" not in said.err
    assert '"ack":1' in run(*args, cwd=folder).raw


def test_control_characters_are_written_out(folder: Path) -> None:
    """Z10."""
    said = run("publish", "--queue", "q", "no\x1b[31m\r\nsuch", cwd=folder)
    assert said.code == 2
    assert "\x1b" not in said.err
    assert len(said.problems) == 2  # the notice about the embedded queue, and one problem


def test_a_closed_pipe_is_quiet(folder: Path) -> None:
    """`chronicle … | head` ends without a complaint."""
    program = "import os, sys; os.close(1); r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
    program += "from chronicle_cli.main import main; main()"
    said = run("publish", "--dry-run", "--queue", "q", "m.json", cwd=folder, program=program)
    assert (said.code, [line for line in said.err.splitlines() if "embedded" not in line]) == (1, [])


@pytest.mark.parametrize(
    ("line", "unbuffered"), [("click.echo('x')", ""), ("click.echo('x')", "1"), ("print('x')", "")]
)
def test_a_full_standard_output_is_one_line(folder: Path, line: str, unbuffered: str) -> None:
    """X6: no defect of chronicle's, whoever printed and whenever it is flushed."""
    (folder / "boom.py").write_text(f"import click\n@click.command\ndef command():\n    {line}\n")
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
    said = run("boom", cwd=folder, env={"PYTHONUNBUFFERED": unbuffered}, program=full + PLUGGED)
    said_once = ["chronicle: standard output cannot be written: No space left on device"]
    assert (said.code, said.err.splitlines()) == (1, said_once)


def test_what_was_done_is_said_although_standard_output_is_full(folder: Path) -> None:
    """Otherwise a person would publish the messages once more."""
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
    program = full + "from chronicle_cli.main import main; main()"
    said = run("publish", "--queue", "q", "m.json", cwd=folder, program=program)
    assert (said.code, said.err.splitlines()[-2:]) == (
        1,
        [
            "chronicle: 1 message on q, confirmed",
            "chronicle: standard output cannot be written: No space left on device",
        ],
    )


@pytest.mark.parametrize("closed", ["1", "2", "0, 1, 2"])
def test_closed_streams_are_no_problem(folder: Path, closed: str) -> None:
    """A queue file never gets the number of a standard stream, where strangers write."""
    program = (
        "import os, sys\n"
        f"if len(sys.argv) > 2:\n    [os.close(n) for n in ({closed},)]\n"
        "    os.execv(sys.executable, [sys.executable, '-c', 'from chronicle_cli.main import main; main()',"
        " *sys.argv[1:]])"
    )
    assert run("publish", "--queue", "q", "m.json", cwd=folder, program=program).code == 0
    syncer = "import os\ndef sync(message):\n    os.write(1, b'x')\n    os.write(2, b'x')\n    return True\n"
    (folder / "s.py").write_text(syncer)
    args = ("consume", "--queue", "q", "--schema", "json", "--syncer", "s.py:sync", "--until-empty")
    assert run(*args, cwd=folder, program=program).code == 0
    assert (folder / "chronicle.db").read_bytes().startswith(b"SQLite format 3")


def test_a_standard_output_that_the_syncer_has_closed(folder: Path) -> None:
    """X6: `with sys.stdout as file` is no defect of chronicle's, and what is done is done."""
    (folder / "s.py").write_text("import sys\ndef sync(message):\n    sys.stdout.close()\n    return True\n")
    syncer = ("--schema", "json", "--syncer", "s.py:sync")
    assert run("publish", "--queue", "q", "m.json", cwd=folder).code == 0
    assert run("consume", "--queue", "q", *syncer, "--until-empty", cwd=folder).code == 0
    said = run("replay", *syncer, "m.json", cwd=folder)
    assert (said.code, said.problems) == (1, ["chronicle: standard output cannot be written: it is closed"])


@pytest.mark.parametrize("other", ["Tee()", "None"])
def test_a_standard_output_that_the_syncer_has_replaced(folder: Path, other: str) -> None:
    """X6: by a copy of it in a file, say, that has no more than a stream needs."""
    tee = "class Tee:\n    def write(self, text): pass\n    def flush(self): pass\n"
    (folder / "s.py").write_text(f"import sys\n{tee}sys.stdout = {other}\ndef sync(m):\n    return True\n")
    args = ("consume", "--queue", "q", "--schema", "json", "--syncer", "s.py:sync", "--until-empty")
    assert run("publish", "--queue", "q", "m.json", cwd=folder).code == 0
    assert run(*args, cwd=folder).code == 0


def test_characters_that_standard_output_has_not(folder: Path) -> None:
    """X6: what was done is said on standard error, and why."""
    said = run("publish", "--queue", "żółw", "m.json", cwd=folder, env={"PYTHONIOENCODING": "latin-1"})
    assert (said.code, said.problems[-1][:53]) == (1, "chronicle: standard output cannot be written: its enc")


@pytest.mark.parametrize("args", [[], ["dlq"], ["keys"]])
def test_without_a_command_the_help_is_shown_as_it_is(folder: Path, args: list[str]) -> None:
    """X6: exit 2, and the same lines as with --help."""
    said, asked = run(*args, cwd=folder), run(*args, "--help", cwd=folder)
    assert (said.code, said.out, said.err) == (2, "", asked.out)


@pytest.mark.parametrize(("args", "meant"), [(["consme"], "consume"), (["keys", "lst"], "list")])
def test_a_command_that_does_not_exist(folder: Path, args: list[str], meant: str) -> None:
    said = run(*args, cwd=folder)
    assert said.code == 2
    assert said.problems[0].endswith(f"Did you mean {meant!r}?")


def test_a_variable_that_is_neither_true_nor_false(folder: Path) -> None:
    """D-9."""
    said = run("publish", "--queue", "q", "m.json", cwd=folder, env={"CHRONICLE_DRY_RUN": "maybe"})
    assert said.code == 2
    assert said.problems == ["chronicle: CHRONICLE_DRY_RUN (--dry-run) takes true or false, not 'maybe'"]


def test_help_needs_no_broker_library(folder: Path) -> None:
    """Start-up stays fast: `chronicle --help` imports none of the heavy rooms, nor any command."""
    program = (
        "import sys\nfrom chronicle_cli.main import run\nrun(['--help'])\n"
        "print('\\nMODULES', *sorted(sys.modules))"
    )
    said = run(cwd=folder, program=program)
    loaded = set(said.out.partition("MODULES")[2].split())
    assert "click" in loaded
    assert not HEAVY & loaded
    assert not {target.partition(":")[0] for target, _ in COMMANDS.values()} & loaded


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=lambda value: str(value))
def test_help_lists_every_option_with_its_variable_and_examples(path: str, command: click.Command) -> None:
    """Every option in `--help` with its variable and examples."""
    ctx = click.Context(
        command, info_name=f"chronicle {path}".strip(), terminal_width=1000, max_content_width=1000
    )
    text = command.get_help(ctx)
    for param in command.params:
        if isinstance(param, click.Option):
            assert any(opt in text for opt in param.opts), param.opts
            assert all(name in text for name in variables(param)), param.opts
    assert re.search(r"EXAMPLES:\n +\S*.*chronicle ", text)


def test_the_working_folder_is_not_on_the_path(folder: Path) -> None:
    """Z1: a `json.py` or `click.py` here shadows nothing."""
    (folder / "click.py").write_text("raise SystemExit(99)")
    (folder / "json.py").write_text("raise SystemExit(98)")
    # `python -c` would put the folder first; the console script, which this stands for, does not.
    assert run("--help", cwd=folder, env={"PYTHONSAFEPATH": "1"}).code == 0
