"""Options that a broker's record names: the flags, the variables, and what reaches the transport."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from chronicle.errors import SettingError
from chronicle.settings.run import Where
from chronicle.transports import catalog
from chronicle.transports.broker import BrokerOption, OptionKind, UrlFacts
from chronicle_cli import options
from chronicle_cli.broker_options import own_options, owners_of
from chronicle_cli.help import Command
from chronicle_cli.variables import unknown
from support import toy_broker

CONSUME = frozenset({"consume"})
BOTH = frozenset({"consume", "publish"})

SPEED = BrokerOption(
    name="wind_up", kind=OptionKind.DURATION, commands=BOTH, help="How long to wind it up.", usual="30s"
)
TOY = (
    SPEED,
    BrokerOption(name="owner", commands=CONSUME, help="Whose it is.", metavar="NAME"),
    BrokerOption(name="no_sound", kind=OptionKind.FLAG, commands=CONSUME, help="Be quiet."),
    BrokerOption(name="pieces", kind=OptionKind.COUNT, commands=CONSUME, help="How many."),
    BrokerOption(
        name="mood", kind=OptionKind.CHOICE, commands=CONSUME, help="Its mood.", values=("glad", "sad")
    ),
)
GAME = (
    replace(SPEED, commands=CONSUME, help="How long a turn is.", usual="1m"),
    BrokerOption(
        name="mood", kind=OptionKind.CHOICE, commands=CONSUME, help="Of the game.", values=("sad", "tense")
    ),
)


def check_url(_url: str, _settings: Mapping[str, str], choices: Mapping[str, Any]) -> UrlFacts:
    """A rule between choices, and a remark about one."""
    if choices.get("no_sound") and choices.get("mood") == "sad":
        raise SettingError("--no-sound with --mood sad", "leave out one of the two")
    return UrlFacts(warnings=("one piece is few",) if choices.get("pieces") == 1 else ())


TOYS = replace(toy_broker.BROKER, options=TOY, check_url=check_url)
GAMES = replace(
    toy_broker.BROKER,
    title="the games",
    schemes=("game",),
    secure_schemes=(),
    example="game://box",
    options=GAME,
    check_url=check_url,
)


@pytest.fixture(autouse=True)
def two_more(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two more lines in the catalog."""
    made_up = {"made_up_toys": TOYS, "made_up_games": GAMES}
    for name, broker in made_up.items():
        module = ModuleType(name)
        module.BROKER = broker  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(catalog, "RECORDS", (*catalog.RECORDS, *made_up))
    catalog.brokers.cache_clear()
    yield
    catalog.brokers.cache_clear()


def asked(command: str, args: str, url: str = "toy://box", **env: str) -> tuple[Where | None, str]:
    """What the options of a command come to, and what it printed; raises what the command raises."""
    found: list[Where] = []

    @click.command(cls=Command)
    @options.where
    @own_options(command)
    @click.pass_context
    def one(ctx: click.Context, /, **_: Any) -> None:
        found.append(options.where_of(ctx))

    runner = CliRunner(env={"CHRONICLE_URL": url, "CHRONICLE_QUEUE": "q", **env})
    done = runner.invoke(one, args, standalone_mode=False, terminal_width=200)
    if done.exception is not None:
        raise done.exception
    return (found[0] if found else None), done.stdout


def chosen(args: str, url: str = "toy://box", **env: str) -> Mapping[str, Any]:
    where, _ = asked("consume", args, url, **env)
    assert where is not None
    assert where.connector().choices == where.choices
    return where.choices


def test_every_kind_reaches_the_transport_as_what_it_is() -> None:
    typed = chosen("--wind-up 1m --owner Ann --no-sound --pieces 3 --mood glad")
    assert typed == {"wind_up": 60.0, "owner": "Ann", "no_sound": True, "pieces": 3, "mood": "glad"}


def test_variables_say_the_same_and_a_flag_wins() -> None:
    env = {"CHRONICLE_WIND_UP": "1m", "CHRONICLE_OWNER": "Ann", "CHRONICLE_NO_SOUND": "true",
           "CHRONICLE_PIECES": "3", "CHRONICLE_MOOD": "glad"}  # fmt: skip
    said = {"wind_up": 60.0, "owner": "Ann", "no_sound": True, "pieces": 3, "mood": "glad"}
    assert chosen("", **env) == said
    assert chosen("--wind-up 5s", **env) == said | {"wind_up": 5.0}


def test_what_was_not_chosen_is_not_there() -> None:
    """The transport has the default, and can tell that nobody asked for it."""
    assert chosen("") == {}
    assert chosen("", CHRONICLE_OWNER="") == {}
    assert chosen("", CHRONICLE_NO_SOUND="false") == {"no_sound": False}


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ("--wind-up soon", "--wind-up takes"),
        ("--pieces 0", "--pieces takes a whole number of at least 1, not '0'"),
        ("--mood grim", "--mood takes one of glad, sad, tense, not 'grim'"),
    ],
)
def test_a_wrong_value_is_refused(args: str, complaint: str) -> None:
    with pytest.raises(click.UsageError) as wrong:
        chosen(args)
    assert wrong.value.message.startswith(complaint)


def test_another_brokers_option_is_refused_when_it_is_typed_and_ignored_as_a_variable() -> None:
    assert chosen("", "local:x.db", CHRONICLE_OWNER="Ann", CHRONICLE_NO_SOUND="1", CHRONICLE_MOOD="sad") == {}
    with pytest.raises(SettingError) as useless:
        chosen("--owner Ann", "game://box")
    assert str(useless.value) == "--owner has no effect on the games: it is for the toy box"
    with pytest.raises(SettingError) as shared:
        chosen("--wind-up 1m", "local:x.db")
    assert str(shared.value).endswith("it is for the toy box and the games")


def test_brokers_that_share_a_name_share_the_flag_and_each_has_its_own_values() -> None:
    assert chosen("--wind-up 2s", "game://box") == {"wind_up": 2.0}
    assert chosen("--mood tense", "game://box") == {"mood": "tense"}
    with pytest.raises(SettingError, match="--mood tense has no effect on the toy box") as refused:
        chosen("--mood tense")
    assert refused.value.remedy == "it takes glad, sad"


def test_the_record_checks_the_rules_between_choices() -> None:
    with pytest.raises(SettingError, match="--no-sound with --mood sad"):
        chosen("--no-sound --mood sad")
    where, _ = asked("consume", "--pieces 1")
    assert where is not None
    assert where.warnings == ("one piece is few",)


def test_the_help_names_each_broker_and_its_default() -> None:
    _, page = asked("consume", "--help")
    flat = " ".join(page.split())
    assert (
        "--wind-up DURATION The toy box: How long to wind it up. [default: 30s] "
        "The games: How long a turn is. [default: 1m] [env var: CHRONICLE_WIND_UP]"
    ) in flat
    assert "--mood [glad|sad|tense]" in flat
    assert "--owner NAME The toy box: Whose it is." in flat
    assert flat.index(" Where: ") < flat.index(" Broker: ") < flat.index("--wind-up")
    assert page.count("--wind-up") == 1


def test_an_option_is_only_on_the_commands_it_is_for() -> None:
    _, page = asked("publish", "--help")
    assert "The toy box: How long to wind it up." in " ".join(page.split())
    assert "The games" not in page  # it has the same option, but not for this command
    assert "--owner" not in page
    with pytest.raises(SettingError, match="--wind-up has no effect on the games: it is for the toy box"):
        asked("publish", "--wind-up 1s", "game://box")
    _, page = asked("capture", "--help")
    assert "The toy box" not in page
    assert "The games" not in page


def test_dotenv_knows_the_variables() -> None:
    assert list(unknown(["CHRONICLE_WIND_UP", "CHRONICLE_MOOD"])) == []
    (typo,) = unknown(["CHRONICLE_WINDUP"])
    assert typo.endswith("did you mean CHRONICLE_WIND_UP?")


def test_one_name_has_one_kind() -> None:
    """Also on different commands: they share the variable."""
    other = replace(GAMES, options=(BrokerOption(name="pieces", commands=frozenset({"dlq"}), help="Names."),))
    with pytest.raises(AssertionError, match="brokers disagree about pieces: count or text"):
        owners_of("consume", (TOYS, other))
    assert set(owners_of("consume", (TOYS, GAMES))) == {option.name for option in TOY}
