"""One record per broker: what the catalog and the command line make of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from chronicle.core.delivery import Delivery
from chronicle.errors import SettingError
from chronicle.settings.run import check_where
from chronicle.transports import catalog
from chronicle.transports.lanes import Lanes
from chronicle.transports.memory import MemoryTransport
from chronicle.transports.seam import Connector, DeadLetterKeeper, Tls
from chronicle_cli.broker_help import broker_urls
from chronicle_cli.commands.declare import command  # imported with the catalog as it is
from support.cli import Said, run

TOY = "support.toy_broker"
WITH_TOY = f"""
from chronicle.transports import catalog
catalog.RECORDS = (*catalog.RECORDS, {TOY!r})
from chronicle_cli.main import main
main()
"""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more line in the catalog."""
    monkeypatch.setattr(catalog, "RECORDS", (*catalog.RECORDS, TOY))
    catalog.brokers.cache_clear()
    yield
    catalog.brokers.cache_clear()


def test_a_scheme_belongs_to_one_broker() -> None:
    schemes = [scheme for broker in catalog.brokers() for scheme in broker.schemes]
    assert len(schemes) == len(set(schemes))
    for broker in catalog.brokers():
        assert set(broker.secure_schemes) <= set(broker.schemes)
        for example in (broker.example, *broker.more_examples):
            assert catalog.broker_of(example) is broker
            broker.check_url(example, {}, {})
    assert [broker.usual_url for broker in catalog.brokers() if broker.usual_url] == [catalog.usual_url()]


def test_who_is_asked_about_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RB8: exactly the brokers whose topology may decide have a check."""
    monkeypatch.chdir(tmp_path)
    for broker in catalog.brokers():
        promises = broker.transport(Connector(broker.example, "q")).promises
        decides = promises.dead_letters in (DeadLetterKeeper.EITHER, DeadLetterKeeper.BROKER)
        assert decides is (broker.dead_letter_check is not None), broker.title


def test_the_records_need_no_client(tmp_path: Path) -> None:
    """Start-up stays fast: no client is imported before its URL is used."""
    program = (
        "import sys\nfrom chronicle.transports.catalog import brokers, broker_of\n"
        "[broker_of(broker.example) for broker in brokers()]\n"
        "print(*{'pika', 'sqlite3', 'ssl', 'confluent_kafka', 'redis'} & set(sys.modules))"
    )
    assert run(cwd=tmp_path, program=program).out == "\n"


def test_errors_name_the_schemes_of_the_catalog(toy: None) -> None:
    with pytest.raises(SettingError) as unknown:
        catalog.broker_of("gopher://x")
    schemes = [scheme for broker in catalog.brokers() for scheme in broker.schemes]
    assert unknown.value.remedy == f"supported schemes: {', '.join(schemes)}"
    assert {"amqps", "local", "toys"} <= set(schemes)
    with pytest.raises(SettingError) as bare:
        catalog.broker_of("chronicle.db")
    assert all(broker.example in bare.value.remedy for broker in catalog.brokers())


def test_the_help_shows_how_to_write_the_url_of_every_broker(toy: None) -> None:
    """One line per broker: its examples, and its schemes with TLS where it has any."""
    lines = list(broker_urls())
    assert "the embedded queue: local:FILE" in lines
    assert "the toy box: toy://box, toy+shelf://top,bottom (with TLS: toys://)" in lines
    for broker, line in zip(catalog.brokers(), lines, strict=True):
        assert all(f"{scheme}://" in line for scheme in broker.secure_schemes)


def test_a_new_broker_is_one_line(toy: None) -> None:
    """What is checked about its URL, its settings and its certificates comes from its record."""
    assert isinstance(catalog.open_transport(Connector("toy://box", "q")), MemoryTransport)
    assert check_where("toy://box", "q", extras={"colour": "red"}).warnings == ("toys break",)
    assert check_where("toys://box", "q", tls=Tls(ca="x")).warnings == ()
    with pytest.raises(SettingError, match="no effect on toy") as plain:
        check_where("toy://box", "q", tls=Tls(ca="x"))
    assert plain.value.remedy == "write toys:// to connect with TLS"
    with pytest.raises(SettingError, match="not known to toys"):
        check_where("toy://box", "q", extras={"size": "1"})


def by_colour(_delivery: Delivery) -> str:
    return "red"


class TestOrder:
    """D-23: which orders a broker has is in its record."""

    @pytest.fixture
    def ordered(self, toy: None, monkeypatch: pytest.MonkeyPatch) -> None:
        broker = replace(catalog.broker_of("toy://box"), orders={"key": by_colour}, usual_order="key")
        monkeypatch.setattr(catalog, "broker_of", lambda _url: broker)

    def test_none_is_no_wrapper(self, toy: None) -> None:
        for order in ("", "none"):
            transport = catalog.open_transport(Connector("toy://box", "q", order=order))
            assert isinstance(transport, MemoryTransport)

    def test_a_field_is_an_order_of_every_broker(self, toy: None) -> None:
        order = "field:contact.contactRef"
        assert isinstance(catalog.open_transport(Connector("toy://box", "q", order=order)), Lanes)

    def test_what_a_broker_lacks_is_refused_with_what_it_has(self, toy: None) -> None:
        with pytest.raises(SettingError, match="--order key cannot be honoured by the toy box") as refused:
            catalog.open_transport(Connector("toy://box", "q", order="key"))
        assert refused.value.remedy == "it takes none, field:PATH, such as field:contact.contactRef"
        with pytest.raises(SettingError) as wrong:
            catalog.open_transport(Connector("toy://box", "q", order="colour"))
        assert "none, key, partition, field:PATH" in wrong.value.remedy

    def test_its_own_may_be_the_usual_one(self, ordered: None) -> None:
        for order in ("", "key"):
            assert isinstance(catalog.open_transport(Connector("toy://box", "q", order=order)), Lanes)
        assert isinstance(catalog.open_transport(Connector("toy://box", "q", order="none")), MemoryTransport)
        with pytest.raises(SettingError) as refused:
            catalog.open_transport(Connector("toy://box", "q", order="partition"))
        assert refused.value.remedy.startswith("it takes none, key, field:PATH")

    def test_a_broker_that_takes_nothing_back_always_has_lanes(
        self, toy: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        promises = replace(MemoryTransport.promises, requeues=False)
        monkeypatch.setattr(MemoryTransport, "promises", promises)
        assert isinstance(catalog.open_transport(Connector("toy://box", "q", order="none")), Lanes)


def test_its_reasons_reach_the_person_who_typed_the_option(toy: None) -> None:
    """Refused when it was typed, and ignored where a project's `.env` may say it: one policy for all."""
    asked = ["--url", "toy://box", "--queue", "q"]
    refused = CliRunner().invoke(command, [*asked, "--only-retry"], standalone_mode=False)
    assert str(refused.exception) == "--only-retry has no effect on the toy box: toys are not tried again"
    done = CliRunner(env={"CHRONICLE_ONLY_RETRY": "1", "CHRONICLE_TTL": "1h"}).invoke(command, asked)
    assert (done.exit_code, done.stdout) == (0, "the plan for q:\n  queue q, durable\ncreated: queue q\n")
    assert "--ttl" not in done.stderr
    typed = CliRunner().invoke(command, [*asked, "--ttl", "1h"], standalone_mode=False)
    assert str(typed.exception) == "--ttl has no effect: toys last"


def test_its_own_options_are_on_the_real_command(tmp_path: Path) -> None:
    """The flag, the variable and the line of `.env`; no file of the command line names them."""
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    (tmp_path / ".env").write_text("CHRONICLE_WIND_UP=1m\nCHRONICLE_WINDUP=2m\n")
    (tmp_path / ".env").chmod(0o600)

    def declare(*args: str, url: str = "toy://box") -> Said:
        asked = ("declare", "--url", url, "--queue", "q", "--dry-run")
        return run(*asked, *args, cwd=tmp_path, env=env, program=WITH_TOY)

    assert "queue q, durable, wind_up=5.0" in declare("--wind-up", "5s").out
    from_file = declare()
    assert "queue q, durable, wind_up=60.0" in from_file.out
    assert "unknown variable CHRONICLE_WINDUP; did you mean CHRONICLE_WIND_UP?" in from_file.err
    assert declare("--wind-up", "0").problems == ["chronicle: --wind-up takes more than 0"]
    assert declare(url="local:x.db").code == 0  # a variable of another broker is ignored
    (useless,) = declare("--wind-up", "5s", url="local:x.db").problems
    assert useless == "chronicle: --wind-up has no effect on the embedded queue: it is for the toy box"
    assert "--wind-up" not in run("publish", "--help", cwd=tmp_path, env=env, program=WITH_TOY).out
