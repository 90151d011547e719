"""How peers are installed: each into a folder of its own under `.envs`, by the names of its packages.

Rule 1: a peer that cannot be installed is Missing, with the reason; nobody guesses what it would have done.
Rule 2: all run on the Python that runs this; what was installed for another one is not used.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from benchmarks import HERE, ROOT
from benchmarks.peers import SCRIPTS, Installer, Peer
from benchmarks.python_build import python_slug

ENVS: Final = HERE / ".envs" / python_slug()
SOURCES: Final = ("src", "cli", "syncers")
CLIENTS: Final = ("aiohttp", "urllib3")
TIMEOUT: Final = 600.0
VERSIONS: Final = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


class Missing(Exception):
    """A peer is not here; the text says why."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that can be run: the folder of its environment and the versions in it."""

    peer: Peer
    env: Path
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Http:
    """What the `http` handlers need: the server's program, and the clients of all Python consumers."""

    server: Path
    clients: Path
    versions: dict[str, str]


def install(peer: Peer) -> Installed:
    """Install a peer, or find it installed; Missing when it cannot be."""
    env = ENVS / "".join(letter if letter.isalnum() else "-" for letter in peer.name).strip("-").lower()
    match peer.installer:
        case Installer.HERE:
            _as_installed()
            return Installed(peer, HERE, _here(peer.packages))
        case Installer.PIP:
            return Installed(peer, env, _pip(env, peer.packages))
        case Installer.NPM:
            return Installed(peer, env, _npm(env, peer.packages))
        case Installer.CC:
            return Installed(peer, env, _cc(env, peer.packages[0]))


def install_http() -> Http:
    """Build the server and install the clients, or find them installed; Missing when it cannot be."""
    clients = ENVS / "clients"
    versions = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(clients)!r}]\n{VERSIONS}", *CLIENTS]
    if not _try(versions):
        quiet = ("--quiet", "--disable-pip-version-check")
        _run([sys.executable, "-m", "pip", "install", *quiet, "--target", str(clients), *CLIENTS])
    server = compiled("server", ENVS / "server")
    return Http(server, clients, json.loads(_run(versions)))


def _here(packages: tuple[str, ...]) -> dict[str, str]:
    try:
        return {name: version(name) for name in packages}
    except PackageNotFoundError as gone:
        raise Missing(f"{gone.name} is not installed in this environment") from None


def _as_installed() -> None:
    """Compile chronicle as pip compiles every peer: what runs from a checkout may have no bytecode kept."""
    for folder in (*(ROOT / name for name in SOURCES), SCRIPTS):
        compileall.compile_dir(folder, quiet=2)


def _pip(env: Path, packages: tuple[str, ...]) -> dict[str, str]:
    python = env / "bin" / "python"
    names = [package.partition("[")[0] for package in packages]
    if not _try([str(python), "-c", VERSIONS, *names]):
        _run([sys.executable, "-m", "venv", "--clear", str(env)])
        quiet = ("--quiet", "--disable-pip-version-check")
        _run([str(python), "-m", "pip", "install", *quiet, *packages])
    found: dict[str, str] = json.loads(_run([str(python), "-c", VERSIONS, *names]))
    return found


def _npm(env: Path, packages: tuple[str, ...]) -> dict[str, str]:
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise Missing(f"there is no {tool} here")
    modules = env / "node_modules"
    if not all((modules / package / "package.json").exists() for package in packages):
        env.mkdir(parents=True, exist_ok=True)
        quiet = ("--loglevel", "error", "--no-audit", "--no-fund")
        _run(["npm", "install", *packages, *quiet, "--prefix", str(env)])
    found = {name: json.loads((modules / name / "package.json").read_text())["version"] for name in packages}
    return {**found, "Node": _run(["node", "--version"]).strip().removeprefix("v")}


def _cc(env: Path, headers: str) -> dict[str, str]:
    if not Path("/usr/include/amqp.h").exists():
        if os.geteuid() or shutil.which("apt-get") is None:
            raise Missing(f"the Debian package {headers} is not installed")
        _run(["apt-get", "-qq", "update"])
        _run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", headers])
    compiled("limit", env, "-lrabbitmq")
    shown = _try(["dpkg-query", "--show", "--showformat", "${Version}", headers])
    return {"librabbitmq": shown or "unknown"}


def compiled(name: str, env: Path, *libraries: str) -> Path:
    """The program made of a file in C."""
    if shutil.which("cc") is None:
        raise Missing("there is no C compiler (cc) here")
    env.mkdir(parents=True, exist_ok=True)
    program = env / name
    _run(["cc", "-O2", "-Wall", "-o", str(program), str(SCRIPTS / f"{name}.c"), *libraries])
    return program


def _try(command: list[str]) -> str:
    """What the command printed; nothing when it failed."""
    try:
        return _run(command)
    except Missing:
        return ""


def _run(command: list[str]) -> str:
    """What the command printed; Missing with its last words when it failed."""
    what = f"{Path(command[0]).name} {' '.join(command[1:3])}"
    # No input: an installer that asks something gets an end of file instead of waiting for ever.
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except FileNotFoundError:
        raise Missing(f"there is no {command[0]} here") from None
    except subprocess.TimeoutExpired:
        raise Missing(f"{what} took longer than {TIMEOUT:g} s") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        # npm's last line says where its log is, which tells nobody what went wrong.
        telling = [line for line in said if "complete log" not in line]
        raise Missing(f"{what} failed: {(telling or said)[-1]}")
    return done.stdout
