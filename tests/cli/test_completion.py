"""Shell completion, by the protocol that click's scripts for bash, zsh and fish speak."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from support.cli import commands, run


def offered(folder: Path, line: str) -> list[str]:
    """What Tab offers at the end of this line, as `type,value`."""
    words = line.split(" ")
    env = {
        "_CHRONICLE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(word for word in words if word),
        "COMP_CWORD": str(len(words) - 1),
    }
    said = run(cwd=folder, env=env)
    assert (said.code, said.err) == (0, "")
    return said.out.splitlines()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("chronicle c", {"consume", "capture"}),
        ("chronicle dlq re", {"redrive"}),
        ("chronicle consume --on-fai", {"--on-failure"}),
        ("chronicle consume --on-failure ", {"requeue-once", "retry:5", "dead-letter", "requeue", "ack"}),
        ("chronicle consume --on-failure re", {"requeue-once", "retry:5", "requeue"}),
        ("chronicle consume --on-invalid ", {"requeue-once", "dead-letter"}),
        ("chronicle consume --schema ", {"proca", "json", "raw"}),
        ("chronicle publish --schema j", {"json"}),
        ("chronicle consume --order ", {"none", "field:", "key", "partition"}),
        ("chronicle consume --mode ", {"stream", "pubsub"}),
        ("chronicle declare --queue-type ", {"classic", "quorum"}),
        ("chronicle consume --log-level ", {"debug", "info", "warning", "error", "critical"}),
        ("chronicle consume --log-format ", {"auto", "pretty", "json"}),
        ("chronicle dlq redrive --match ", {"reason=", "id=", "entry=", "schema=", "age>", "age<"}),
    ],
)
def test_values(tmp_path: Path, line: str, values: set[str]) -> None:
    assert set(offered(tmp_path, line)) == {f"plain,{value}" for value in values}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("chronicle --env-file ", "file"),
        ("chronicle publish --queue q m", "file"),
        ("chronicle replay --syncer s ", "file"),
        ("chronicle replay --dead-letters ", "file"),
        ("chronicle capture --queue q ", "file"),
        ("chronicle dlq export ", "file"),
        ("chronicle dlq drop --export ", "file"),
        ("chronicle consume --syncer cr", "file"),
        ("chronicle consume --keys ", "file"),
        ("chronicle consume --tls-ca ", "file"),
        ("chronicle consume --app-dir ", "dir"),
        ("chronicle keys check ", "file"),
        ("chronicle keys check --message ", "file"),
    ],
)
def test_files(tmp_path: Path, line: str, kind: str) -> None:
    (found,) = offered(tmp_path, line)
    assert found.split(",")[0] == kind


def test_nothing_is_read_and_nothing_is_said(tmp_path: Path) -> None:
    """A `.env` that would be refused, or a misspelt variable, does not disturb the line that is typed."""
    (tmp_path / ".env").write_text("CHRONICLE_CONCURENCY=1\n")
    (tmp_path / ".env").chmod(0o644)
    assert "plain,--queue" in offered(tmp_path, "chronicle consume --que")


def test_every_choice_and_every_file_is_completed() -> None:
    """What the help shows as [a|b] is offered, and what it calls FILE is a file."""
    for path, command in commands():
        ctx = click.Context(command)
        for param in command.params:
            shown = param.metavar or ""
            found = param.shell_complete(ctx, "")
            if shown.startswith("[") and "|" in shown:
                assert len(found) == shown.count("|") + 1, (path, param.name)
            if shown.strip("[]…") in ("FILE", "FOLDER", "PATH..."):
                assert [one.type in ("file", "dir") for one in found] == [True], (path, param.name)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(tmp_path: Path, shell: str) -> None:
    """As the page says; each shell that is here can read its own."""
    version = {"BASH_VERSION": "5"} if shell == "bash" else {}
    said = run(cwd=tmp_path, env={"_CHRONICLE_COMPLETE": f"{shell}_source", **version})
    assert said.code == 0
    assert "_CHRONICLE_COMPLETE" in said.out
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n", "-c", said.out], check=True, timeout=30)


@pytest.mark.parametrize(
    ("offers", "space"),
    [("reason=", False), ("field:", False), ("json", True), ("field: none", True), ("", True)],
)
def test_bash_adds_no_space_to_a_word_that_goes_on(tmp_path: Path, offers: str, space: bool) -> None:
    """A program that offers these words stands in for chronicle, and a function tells what bash is told."""
    env = {"_CHRONICLE_COMPLETE": "bash_source", "BASH_VERSION": "5"}
    script = run(cwd=tmp_path, env=env).out
    stub = tmp_path / "chronicle"
    stub.write_text(f"#!/bin/sh\nfor word in {offers}; do echo plain,$word; done\n")
    stub.chmod(0o755)
    ask = f"""{script}
        compopt() {{ echo "told $*"; }}
        function=$(complete -p chronicle | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        $function {stub}
        echo "${{COMPREPLY[*]}}"
    """
    said = subprocess.run(["bash", "-c", ask], check=True, timeout=30, capture_output=True, text=True)
    assert said.stdout.splitlines() == ([] if space else ["told -o nospace"]) + [offers]
    assert said.stderr == ""
