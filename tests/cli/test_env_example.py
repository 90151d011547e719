"""`.env.example` lists every variable, and only those that mean something."""

from __future__ import annotations

import re
from pathlib import Path

import click

import chronicle_syncers
from chronicle_cli import broker_url, passphrase
from chronicle_cli.dotenv_file import load_env
from chronicle_cli.variables import OF_COMMANDS, OF_SYNCERS, PREFIX, of_brokers
from support.cli import commands, variables

EXAMPLE = Path(__file__).parents[2] / ".env.example"


def test_example_and_options_name_the_same_variables() -> None:
    """design.md §5: every option is a flag, a variable and a line of .env."""
    known = {name for _, command in commands() for param in command.params for name in variables(param)}
    listed = re.findall(r"^#?([A-Z][A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE)
    bare = {*broker_url.VARIABLES, *passphrase.VARIABLES}
    assert sorted(listed) == sorted(known | bare)


def test_the_variables_that_are_known() -> None:
    """The list that finds slips in .env names the same ones, and those of the ready-made syncers."""
    options = {name for _, command in commands() for param in command.params for name in variables(param)}
    ours = {*options, *broker_url.VARIABLES, *passphrase.VARIABLES}
    assert not OF_COMMANDS & of_brokers()
    known = {f"{PREFIX}{name}" for name in OF_COMMANDS | of_brokers()}
    assert known == {name for name in ours if name.startswith(PREFIX)}
    texts = (file.read_text() for file in Path(chronicle_syncers.__path__[0]).glob("*.py"))
    named = {name for text in texts for name in re.findall(r"CHRONICLE_[A-Z_]*[A-Z]", text)}
    assert named - known == {f"{PREFIX}{name}" for name in OF_SYNCERS}


def test_every_flag_has_a_variable() -> None:
    """design.md §5: only --version and --help are without."""
    bare = {
        (path, param.opts[0])
        for path, command in commands()
        for param in command.params
        if param.param_type_name == "option" and not variables(param)
    }
    assert bare == {("", "--version")}


def test_no_option_of_a_broker_has_the_name_of_another_option() -> None:
    for path, command in commands():
        flags = [flag for param in command.params for flag in (*param.opts, *param.secondary_opts)]
        names = [param.name for param in command.params]
        assert (len(flags), len(names)) == (len(set(flags)), len(set(names))), path


def test_example_read_as_it_stands_changes_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "copy.env"
    copy.write_text(EXAMPLE.read_text())
    copy.chmod(0o600)
    environ: dict[str, str] = {}
    load_env(str(copy), environ)
    assert environ == {}


def test_every_listed_value_is_one_the_option_takes(tmp_path: Path) -> None:
    """The examples in the file are true: each value converts, and a default shown is the default."""
    values = dict(re.findall(r"^#([A-Z][A-Z_]+)=(.+)$", EXAMPLE.read_text(), re.MULTILINE))
    for path, command in commands():
        ctx = command.make_context(path, [], resilient_parsing=True)
        for param in command.params:
            for name in variables(param):
                if name in values and not param.multiple:
                    param.type.convert(values[name], param, ctx)


def test_X5_the_pages_say_what_a_drain_must_fit_into() -> None:
    """D-11 keeps 30s, which is all that Kubernetes waits: who runs it must hear of that everywhere."""
    consume = dict(commands())["consume"]
    (drain,) = [param for param in consume.params if param.name == "drain_timeout"]
    page = EXAMPLE.with_name("docs") / "running.md"
    assert isinstance(drain, click.Option)
    for text in (drain.help or "", EXAMPLE.read_text(), page.read_text()):
        assert "Kubernetes" in text
    assert "terminationGracePeriodSeconds" in page.read_text()
