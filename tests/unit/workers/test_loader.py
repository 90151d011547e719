"""Finding a syncer by name, and what is said when there is none (Z1, D-9, design §4)."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import SettingError, SyncerError
from chronicle.workers.loader import FORM, Syncer, load, look_at

SYNC = "def sync(message):\n    return True\n"


@pytest.fixture(autouse=True)
def importing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test in a folder of its own, and what it imported is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.resolve()


def refusal(spec: str, app_dir: str = ".") -> SyncerError:
    with pytest.raises(SyncerError) as caught:
        load(spec, app_dir)
    return caught.value


def told(error: SyncerError) -> tuple[str, str]:
    return error.problem, error.remedy


class TestFound:
    def test_by_module_and_by_path(self) -> None:
        file = write("my_crm.py", SYNC)
        for spec in ("my_crm:sync", "my_crm.py:sync", f"{file}:sync", "./my_crm.py:sync"):
            found = load(spec)
            assert (found.name, found.file) == (spec, str(file))
            assert found.make()({}) is True

    def test_in_the_app_folder(self) -> None:
        file = write("app/deep/crm.py", SYNC)
        assert load("deep.crm:sync", "app").file == str(file)
        assert load("deep/crm.py:sync", "app").file == str(file)

    def test_a_file_finds_what_lies_beside_it(self) -> None:
        write("jobs/helper_of_job.py", "ANSWER = True\n")
        write("jobs/nightly.py", "import helper_of_job\ndef sync(m): return helper_of_job.ANSWER\n")
        assert load("jobs/nightly.py:sync").make()({}) is True

    def test_a_method_of_something_in_the_module(self) -> None:
        write("with_parts.py", "class Crm:\n    def sync(self, m): return True\ncrm = Crm()\n")
        assert load("with_parts:crm.sync").make()({}) is True

    def test_a_name_no_module_could_have(self) -> None:
        write("my-sync.py", SYNC)
        assert load("my-sync.py:sync").make()({}) is True

    @pytest.mark.parametrize("name", ["json", "colorsys"])
    def test_Z1_a_file_named_like_the_standard_library_shadows_nothing(
        self, name: str, tmp_path: Path
    ) -> None:
        """One module is imported already when the syncer is found, the other is not."""
        write(f"{name}.py", "def sync(message):\n    return True\n")
        write("crm_beside.py", f"import {name}\ndef sync(m): return {name}.__file__\n")
        program = (
            "from chronicle.workers.loader import load\n"
            f"assert load('{name}.py:sync').make()({{}}) is True\n"
            "print(load('crm_beside:sync').make()({}))\n"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert str(tmp_path) not in done.stdout
        assert name in done.stdout

    def test_Z1_a_module_of_the_standard_library_is_meant_first(self) -> None:
        """The way out is in the remedy: the path form."""
        write("json.py", SYNC)
        assert told(refusal("json:sync")) == (
            f"no function 'sync' in json ({json.__file__})",
            "an installed module has the same name as your file: write ./json.py:sync",
        )


class TestCalled:
    def test_one_or_two_parameters(self) -> None:
        assert not look_at(lambda message: True, "f").takes_delivery
        assert look_at(lambda message, delivery: True, "f").takes_delivery
        assert look_at(lambda message, delivery=None: True, "f").takes_delivery
        assert not look_at(lambda message, *, dry=True: True, "f").takes_delivery
        assert not look_at(lambda *rest: True, "f").takes_delivery
        assert not look_at(max, "a function in C that tells nothing").takes_delivery

    def test_methods_instances_and_classes_do_not_count_themselves(self) -> None:
        class Crm:
            def __call__(self, message: Any, delivery: Any) -> bool:
                return True

            def sync(self, message: Any) -> bool:
                return True

        assert look_at(Crm, "Crm").takes_delivery
        assert look_at(Crm(), "crm").takes_delivery
        assert not look_at(Crm().sync, "crm.sync").takes_delivery

    def test_a_partial_takes_what_is_left_of_its_function(self) -> None:
        def sync(session: object, message: Any, delivery: Any) -> bool:
            return True

        assert look_at(functools.partial(sync, None), "p").takes_delivery
        assert not look_at(functools.partial(sync, None, delivery=None), "p").takes_delivery

    def test_async_is_seen_in_every_form(self) -> None:
        async def sync(message: Any) -> bool:
            return True

        class Crm:
            async def __call__(self, message: Any) -> bool:
                return True

            async def sync(self, message: Any) -> bool:
                return True

        class Plain:
            def __call__(self, message: Any) -> bool:
                return True

        for target in (sync, functools.partial(sync), Crm, Crm(), Crm().sync):
            assert look_at(target, "a").is_async
        for plain in (Plain, Plain(), lambda message: True, functools.partial(lambda message: True)):
            assert not look_at(plain, "p").is_async


class TestRefused:
    @pytest.mark.parametrize("spec", ["my_crm", "", ":", "my_crm:", ":sync", "my_crm.py"])
    def test_no_function_named(self, spec: str) -> None:
        assert told(refusal(spec)) == (f"--syncer {spec!r} does not name a function", FORM)

    def test_no_such_module(self, tmp_path: Path) -> None:
        remedy = "check the name, or say where it is with --app-dir"
        for spec, missing in (("my_crm:sync", "my_crm"), ("json.my_crm:sync", "json.my_crm")):
            there = f"no module {missing!r} in {str(tmp_path)!r} or among the installed packages"
            assert told(refusal(spec)) == (there, remedy)

    @pytest.mark.parametrize(
        ("spec", "meant"),
        [
            ("my_crn:sync", "my_crm:sync"),
            ("job.nightly:run", "jobs.nightly:run"),
            ("my_crn:Crm.sync", "my_crm:Crm.sync"),
            ("team.my_crn:sync", "team.my_crm:sync"),
        ],
    )
    @pytest.mark.parametrize("app_dir", [".", "app"])
    def test_a_module_that_is_called_nearly_so(self, spec: str, meant: str, app_dir: str) -> None:
        """D-9: as a misspelt function is; nothing of the folder is imported for it."""
        write(f"{app_dir}/my_crm.py", "raise ValueError")
        write(f"{app_dir}/jobs/__init__.py", "raise ValueError")
        write(f"{app_dir}/team/my_crm.py", "raise ValueError")
        assert refusal(spec, app_dir).remedy == f"did you mean {meant}?"

    @pytest.mark.parametrize(
        ("spec", "meant"),
        [
            ("my_crn.py:sync", "my_crm.py:sync"),
            ("./my_crm:sync", "my_crm.py:sync"),
            ("team/my_crn.py:Crm.sync", "team/my_crm.py:Crm.sync"),
        ],
    )
    @pytest.mark.parametrize("app_dir", [".", "app"])
    def test_a_file_that_is_called_nearly_so(self, spec: str, meant: str, app_dir: str) -> None:
        """D-9: as a misspelt module is."""
        write(f"{app_dir}/my_crm.py", "raise ValueError")
        write(f"{app_dir}/team/my_crm.py", "raise ValueError")
        assert refusal(spec, app_dir).remedy == f"did you mean {meant}?"

    def test_a_link_to_nowhere_is_not_suggested_in_place_of_itself(self) -> None:
        Path("my_crm.py").symlink_to("gone.py")
        assert refusal("my_crm.py:sync").remedy == "check the path"

    def test_no_such_file(self, tmp_path: Path) -> None:
        problem = f"no file 'jobs/my_crm.py' here or in {str(tmp_path)!r}"
        assert told(refusal("jobs/my_crm.py:sync")) == (problem, "check the path")

    def test_no_such_app_folder(self) -> None:
        problem = "the app folder 'nowhere' does not exist"
        assert told(refusal("my_crm:sync", "nowhere")) == (problem, "name another one with --app-dir")

    def test_not_a_python_file(self) -> None:
        write("jobs/crm.txt", SYNC)
        assert told(refusal("jobs/crm.txt:sync")) == ("'jobs/crm.txt' is not a Python file", FORM)

    @pytest.mark.parametrize("spec", ["broken_crm:sync", "broken_crm.py:sync"])
    def test_a_module_that_fails_to_import(self, spec: str) -> None:
        file = write("broken_crm.py", "def setup():\n    return 1 / 0\nsetup()\n" + SYNC)
        error = refusal(spec)
        place = spec.partition(":")[0]
        assert error.problem == f"your module {place!r} failed to import: ZeroDivisionError"
        by_hand = "broken_crm.py" if place.endswith(".py") else "-c 'import broken_crm'"
        assert error.remedy == f"fix it; check that it runs: python {by_hand}"
        frames = [line for line in error.trace.splitlines() if line.startswith("  File ")]
        assert frames == [
            f'  File "{file}", line 3, in <module>',
            f'  File "{file}", line 2, in setup',
        ]
        assert error.trace.splitlines()[-1] == "ZeroDivisionError: division by zero"
        assert "broken_crm" not in sys.modules

    def test_a_syntax_error_shows_its_line(self) -> None:
        file = write("half_crm.py", "def sync(message:\n    return True\n")
        error = refusal("half_crm:sync")
        assert error.problem == "your module 'half_crm' failed to import: SyntaxError"
        assert f'File "{file}", line 1' in error.trace

    def test_an_import_inside_it_that_fails(self) -> None:
        """It is there and something it needs is not: another sentence than `no module`."""
        file = write("needy_crm.py", "import no_such_library\n" + SYNC)
        error = refusal("needy_crm:sync")
        assert error.problem == "your module 'needy_crm' failed to import: ModuleNotFoundError"
        assert f'File "{file}", line 1' in error.trace
        assert "No module named 'no_such_library'" in error.trace

    def test_an_error_of_its_own_is_named(self) -> None:
        write("own_crm.py", "class CrmError(Exception): ...\nraise CrmError('no CRM')\n")
        error = refusal("own_crm:sync")
        assert error.problem == "your module 'own_crm' failed to import: CrmError"
        assert error.trace.splitlines()[-1] == "CrmError: no CRM"

    def test_a_module_that_exits(self) -> None:
        write("exit_crm.py", "raise SystemExit(0)\n")
        assert refusal("exit_crm:sync").problem == "your module 'exit_crm' failed to import: SystemExit"

    def test_no_such_function(self) -> None:
        file = write("named_crm.py", "def sync_contact(message): return True\ndef other(m): return True\n")
        problem = f"no function 'sync_contakt' in named_crm ({file})"
        assert told(refusal("named_crm:sync_contakt")) == (problem, "did you mean named_crm:sync_contact?")
        assert refusal("named_crm:xyz").remedy == "it has: other, sync_contact"

    def test_no_function_at_all(self) -> None:
        file = write("empty_crm.py", "import json\n")
        assert told(refusal("empty_crm:sync")) == (f"no function 'sync' in empty_crm ({file})", FORM)

    def test_not_callable(self) -> None:
        write("data_crm.py", "sync = {'a': 1}\n")
        problem = "data_crm:sync is a dict, not a function or a class"
        assert told(refusal("data_crm:sync")) == (problem, FORM)

    @pytest.mark.parametrize(
        ("signature", "count"),
        [("", 0), ("a, b, c", 3), ("*, a", 1), ("message, *, session", 2), ("**rest", 0)],
    )
    def test_the_wrong_number_of_parameters(self, signature: str, count: int) -> None:
        write("odd_crm.py", f"def sync({signature}): return True\n")
        expected = (
            f"odd_crm:sync takes {count} arguments",
            "a syncer takes (message) or (message, delivery)",
        )
        assert told(refusal("odd_crm:sync")) == expected

    def test_a_class_that_cannot_be_called(self) -> None:
        write("class_crm.py", "class Crm:\n    def sync(self, message): return True\n")
        problem = "class Crm cannot be called with a message"
        assert told(refusal("class_crm:Crm")) == (problem, "give it a __call__(self, message)")


class TestMade:
    def test_a_function_is_itself_and_a_class_becomes_an_instance(self) -> None:
        class Crm:
            def __call__(self, message: Any) -> bool:
                return True

        def sync(message: Any) -> bool:
            return True

        assert look_at(sync, "s").make() is sync
        assert type(look_at(Crm, "C").make()) is Crm

    def test_a_class_that_does_not_start(self) -> None:
        write("bad_class.py", "class Crm:\n    def __init__(self): self.x\n    def __call__(self, m): ...\n")
        syncer = load("bad_class:Crm")
        error = made_in_vain(syncer)
        assert isinstance(error, SyncerError)
        words = "AttributeError: 'Crm' object has no attribute 'x'"
        assert error.problem == f"the syncer bad_class:Crm did not start: {words}"
        assert error.remedy == "fix it; its traceback is above"
        assert 'bad_class.py", line 2, in __init__' in error.trace
        assert "loader.py" not in error.trace

    def test_Z4_the_words_of_an_error_that_may_hold_a_secret_are_withheld(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CRM_TOKEN", "hunter2")
        start = "    def __init__(self): raise ValueError(os.environ['CRM_TOKEN'])\n"
        write("leaky.py", f"import os\nclass Crm:\n{start}    def __call__(self, m): ...\n")
        error = made_in_vain(load("leaky:Crm"))
        assert isinstance(error, SyncerError)
        assert "ValueError" in error.trace
        assert "hunter2" not in error.trace

    def test_the_words_of_an_error_at_the_start_are_shown(self) -> None:
        """No message has come yet, so nobody's data can be in them."""
        start = "    def __init__(self): raise RuntimeError('no CRM_URL')\n"
        write("unset.py", f"class Crm:\n{start}    def __call__(self, m): ...\n")
        error = made_in_vain(load("unset:Crm"))
        assert isinstance(error, SyncerError)
        assert "RuntimeError: no CRM_URL" in error.trace

    def test_a_setting_error_of_a_ready_made_syncer_passes_with_its_remedy(self) -> None:
        class Crm:
            def __init__(self) -> None:
                raise SettingError("CRM_TOKEN is not set", "export CRM_TOKEN")

            def __call__(self, message: Any) -> bool:
                return True

        error = made_in_vain(look_at(Crm, "Crm"))
        assert isinstance(error, SettingError)
        assert (error.problem, error.remedy) == ("CRM_TOKEN is not set", "export CRM_TOKEN")


def made_in_vain(syncer: Syncer) -> BaseException:
    with pytest.raises((SyncerError, SettingError)) as caught:
        syncer.make()
    return caught.value
