"""Finding the user's function: `module:name` or `path/to/file.py:name`.

Rule 1: the app folder goes behind everything else on the path, so a `json.py` there shadows nothing (Z1).
Rule 2: each mistake has its own error: no such module, a module that fails to import, no such
        function, something that cannot be called.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from chronicle.core.frozen import frozen
from chronicle.errors import OperatorError, SyncerError
from chronicle.telemetry.redaction import KNOWN, one_line, reason_of, secrets_in, trace_of

# No message has come yet, so an error can quote nothing of one.
NO_MESSAGE: Final[Mapping[str, Any]] = {}
FORM = "write it as module:function or path/to/file.py:function"


@frozen
class Syncer:
    """A syncer found and inspected, not yet created: a class becomes an instance when the workers start."""

    name: str
    file: str
    target: Any
    is_async: bool
    takes_delivery: bool

    def make(self) -> Any:
        """The thing to call: the function itself, or an instance of the class."""
        try:
            return self.target() if inspect.isclass(self.target) else self.target
        except BaseException as error:
            raise self.did_not_start(error) from error

    def did_not_start(self, error: BaseException) -> OperatorError:
        """The error to report when the class, or entering its context, raised."""
        if isinstance(error, OperatorError):  # a built-in syncer says itself which setting is wrong
            return error
        return SyncerError(
            f"the syncer {self.name} did not start: {reason_of(error, NO_MESSAGE)}",
            "fix it; its traceback is above",
            trace=trace_of(error, NO_MESSAGE),
        )


def load(spec: str, app_dir: str = ".") -> Syncer:
    """Find a syncer by name."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise SyncerError(f"--syncer {spec!r} does not name a function", FORM)
    folder = Path(app_dir)
    if not folder.is_dir():
        raise SyncerError(f"the app folder {app_dir!r} does not exist", "name another one with --app-dir")
    _append_to_path(folder)
    _know_the_environment()
    find = _module_from_file if is_file(place) else _module_by_name
    module = find(place, folder, name)
    return look_at(_attribute(module, name, place), spec, getattr(module, "__file__", None) or place)


def look_at(target: Any, name: str, file: str = "") -> Syncer:
    """Find out how a syncer wants to be called."""
    if not callable(target):
        raise SyncerError(f"{name} is a {type(target).__name__}, not a function or a class", FORM)
    _know_the_environment()  # the module may have added to it
    function = _call_of(target)
    return Syncer(
        name=name,
        file=file,
        target=target,
        is_async=inspect.iscoroutinefunction(function),
        takes_delivery=_takes_delivery(function, name),
    )


def _know_the_environment() -> None:
    """What foreign code can read, its errors may quote."""
    KNOWN.add(*secrets_in(os.environ))


def _call_of(target: Any) -> Callable[..., Any]:
    """The function that will run: the target, or the `__call__` of its (future) instance."""
    if inspect.isclass(target):
        if not any("__call__" in vars(base) for base in inspect.getmro(target)):
            raise SyncerError(
                f"class {target.__name__} cannot be called with a message",
                "give it a __call__(self, message)",
            )
        # A throw-away bound method: only its signature matters.
        function = inspect.getattr_static(target, "__call__")
        return function.__get__(object(), target)  # type: ignore[no-any-return]
    # A partial's own signature shows the remaining parameters; its __call__ takes anything.
    if inspect.isroutine(target) or isinstance(target, functools.partial):
        return target
    return target.__call__  # type: ignore[no-any-return]


def _takes_delivery(function: Callable[..., Any], name: str) -> bool:
    """Whether it takes (message, delivery). An optional second parameter must be named `delivery`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function written in C may have no signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    wanted_by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    takes_rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if wanted_by_name or len(required) > 2 or not (positional or takes_rest):
        raise SyncerError(
            f"{name} takes {len(required) + len(wanted_by_name)} arguments",
            "a syncer takes (message) or (message, delivery)",
        )
    return len(positional) >= 2 and (len(required) == 2 or positional[1].name == "delivery")


def is_file(place: str) -> bool:
    """Whether a syncer is named by its file, and not by its module."""
    return place.endswith(".py") or "/" in place


def _append_to_path(folder: Path) -> None:
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.append(path)


def _module_by_name(name: str, folder: Path, function: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == name or name.startswith(missing + "."):
            raise _no_such_module(missing, folder, f"{name.removeprefix(missing)}:{function}") from None
        raise _failed_import(name, error) from error
    except KeyboardInterrupt:  # a signal, meanwhile
        raise
    except BaseException as error:
        raise _failed_import(name, error) from error


def _no_such_module(missing: str, folder: Path, rest: str) -> SyncerError:
    """`rest` is what stands behind its name; beside it there may be one that is called nearly so."""
    *package, last = missing.split(".")
    beside = folder.joinpath(*package)
    there = [path.stem for path in beside.glob("*.py")]
    there += [path.parent.name for path in beside.glob("*/__init__.py")]
    meant = _closest(last, there)
    return SyncerError(
        f"no module {missing!r} in {str(folder.resolve())!r} or among the installed packages",
        f"did you mean {'.'.join((*package, meant))}{rest}?"
        if meant
        else "check the name, or say where it is with --app-dir",
    )


def _no_such_file(place: str, folder: Path, function: str) -> SyncerError:
    wanted = Path(place)
    around = [path for root in (Path(), folder) for path in (root / wanted).parent.glob("*.py")]
    meant = _closest(wanted.name, [path.name for path in around if path.is_file()])
    return SyncerError(
        f"no file {place!r} here or in {str(folder.resolve())!r}",
        f"did you mean {wanted.with_name(meant)}:{function}?" if meant else "check the path",
    )


def _closest(name: str, there: Iterable[str]) -> str:
    """The one that is called nearly so; empty if there is none."""
    import difflib  # for these mistakes only

    return next(iter(difflib.get_close_matches(name, there, n=1)), "")


def _module_from_file(place: str, folder: Path, function: str) -> ModuleType:
    path = next((p for p in (Path(place), folder / place) if p.is_file()), None)
    if path is None:
        raise _no_such_file(place, folder, function)
    path = path.resolve()
    _append_to_path(path.parent)
    name = path.stem if _is_free(path) else f"syncer_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SyncerError(f"{place!r} is not a Python file", FORM)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):  # a signal, meanwhile
            raise
        raise _failed_import(place, error) from error
    return module


def _is_free(path: Path) -> bool:
    """Whether importing the file's own name would give this file, so that it shadows nothing (Z1)."""
    if path.stem in sys.modules or not path.stem.isidentifier():
        return False
    found = importlib.util.find_spec(path.stem)
    return found is not None and found.origin == str(path)


def _failed_import(place: str, error: BaseException) -> SyncerError:
    """The user's module raised: they need their own lines of the traceback, not importlib's or ours."""
    by_hand = shlex.quote(place) if is_file(place) else f"-c {shlex.quote(f'import {place}')}"
    return SyncerError(
        f"your module {place!r} failed to import: {one_line(type(error).__name__)}",
        f"fix it; check that it runs: python {by_hand}",
        trace=trace_of(error, NO_MESSAGE),
    )


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    target: Any = module
    for part in name.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            raise _no_such_function(module, name, place) from None
    return target


def _no_such_function(module: ModuleType, name: str, place: str) -> SyncerError:
    names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
    own = [n for n in names if getattr(getattr(module, n), "__module__", None) == module.__name__]
    close = _closest(name, own)
    file = getattr(module, "__file__", None) or place
    twin = Path(f"{place}.py")
    if close:
        remedy = f"did you mean {place}:{close}?"
    elif not is_file(place) and twin.is_file() and Path(file).resolve() != twin.resolve():
        remedy = f"an installed module has the same name as your file: write ./{twin}:{name}"
    elif own:
        remedy = f"it has: {', '.join(sorted(own)[:8])}"
    else:
        remedy = FORM
    return SyncerError(f"no function {name!r} in {place} ({file})", remedy)
