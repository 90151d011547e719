"""An interpreter that has imported all of chronicle already, and forks for every command it is asked for.

Its text is the first half of the program that `support.cli` starts; the second half runs the command.

Rule 1: a command gets its arguments, its folder, its environment and its three streams from whoever asks,
        and ends as every interpreter does.
Rule 2: that a command imports what it needs cannot be shown here. It is shown by those that are started
        afresh, and by `tests/unit/test_modules.py`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

PACKAGES = ("chronicle", "chronicle_cli")


def modules() -> Iterator[str]:
    """The names of chronicle's modules."""
    for name in PACKAGES:
        yield name
        found = pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}.")
        yield from (module.name for module in found if not module.name.endswith("__main__"))


def fork_for_each(asked: socket.socket) -> None:
    """Serve until whoever asks is gone; returns only in a fork, which then is the command."""
    for name in modules():
        importlib.import_module(name)
    gc.freeze()  # what a collection touches, a fork must copy
    while True:
        message, files, _, _ = socket.recv_fds(asked, 1 << 20, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            asked.close()
            return _become(json.loads(message), *files)
        for file in files:
            os.close(file)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # one whose command has ended by now


def _become(command: dict[str, Any], answer: int, *streams: int) -> None:
    """Be the command, in a child whose pid and exit code are told by this process."""
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        with socket.socket(fileno=answer) as told:
            told.send(b"%d" % child)
            told.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    os.close(answer)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    sys.argv[1:] = command["args"]
