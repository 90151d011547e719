"""The options of `run` are those of `chronicle consume`, and are checked like them."""

from __future__ import annotations

from typing import Any, Final

import click
import pytest

from chronicle import RoutingKey, subscribe
from chronicle.errors import SettingError
from chronicle.library.options import RunOptions, SubscribeOptions
from chronicle.library.plan import names_of, plan_run
from chronicle.testing import MemoryBroker
from chronicle_cli.commands.consume import command
from support.proca_messages import CANARY

# Arguments of their own, and what is about a terminal and files.
THE_COMMANDS_OWN: Final = frozenset(
    {
        "url", "queue", "syncer", "log_format", "log_level", "live", "capture", "encrypt", "bodies_as_json",
    }
)  # fmt: skip
PROGRAMS_OWN: Final = frozenset({"handle", "on_event"})
SPELLED: Final = {"extras": "set", "sign_keys": "sign_key", "from": "from_"}


def yes(_message: object) -> bool:
    return True


def test_every_option_of_the_command_has_its_name_here() -> None:
    """One way of doing a thing: a new option of `consume` belongs into RunOptions, or is named above."""
    names = {param.name for param in command.params if isinstance(param, click.Option) and param.name}
    flags = {SPELLED.get(name, name) for name in names - THE_COMMANDS_OWN}
    assert names_of(RunOptions) == flags | PROGRAMS_OWN
    assert names_of(SubscribeOptions) < names_of(RunOptions)


def test_the_defaults_are_those_of_the_command() -> None:
    """Compared with what click makes of an empty command line."""
    given = command.make_context("consume", ["--queue", "q", "--syncer", "m:f", "--url", "local:q.db"]).params
    job, _ = plan_run(MemoryBroker(), "q", yes, {})
    bounds, lifecycle, limits = job.bounds, job.lifecycle, job.limits
    assert (limits.time_limit, limits.brake, given["rate"]) == (given["time_limit"], given["brake"], None)
    assert (limits.rate, job.progress) == (float("inf"), given["progress"])
    assert (job.concurrency, job.prefetch, job.pipeline.schema) == (given["concurrency"], 2, given["schema"])
    assert job.pipeline.max_body == given["max_body"]
    assert (job.policy.on_failure, 0) == given["on_failure"]
    assert (job.policy.on_invalid, job.policy.on_exception) == (given["on_invalid"], given["on_exception"])
    assert (bounds.until_empty, bounds.max_messages, bounds.max_time) == (False, None, None)
    assert (lifecycle.startup_timeout, lifecycle.drain_timeout, lifecycle.give_up_after) == (
        given["startup_timeout"],
        given["drain_timeout"],
        given["give_up_after"],
    )


def test_durations_and_sizes_are_numbers_or_texts() -> None:
    given: RunOptions = {
        "max_time": "5m",
        "idle_timeout": 2,
        "max_body": "1MiB",
        "startup_timeout": 0,
        "on_failure": "retry:3",
        "retry_delay": [1, "5s"],
    }
    job, _ = plan_run(MemoryBroker(), "q", yes, given)
    assert (job.bounds.max_time, job.bounds.idle_timeout, job.lifecycle.startup_timeout) == (300.0, 2.0, 0.0)
    assert job.pipeline.max_body == 1024 * 1024
    assert (job.policy.max_attempts, job.policy.retry_delays) == (3, (1.0, 5.0))


WRONG: Final[list[tuple[dict[str, Any], str]]] = [
    ({"concurrency": 0}, "^concurrency takes a whole number"),
    ({"concurrency": True}, "^concurrency takes a whole number"),
    ({"prefetch": 70_000}, "^prefetch takes at most 65535"),
    ({"schema": "xml"}, "^schema takes one of proca, json, raw, not 'xml'"),
    ({"max_time": "5"}, "^max_time takes a duration with its unit"),
    ({"max_time": 0}, "^max_time takes a duration above zero"),
    ({"max_time": float("nan")}, "^max_time takes a number of seconds"),
    ({"retry_delay": [5]}, "^retry_delay without on_failure retry:N"),
    ({"retry_delay": "5s", "on_failure": "retry:3"}, "^retry_delay takes durations"),
    ({"on_exhausted": "drop"}, "^on_exhausted without max_retries"),
    ({"on_failure": "retry"}, "^on_failure takes retry:N"),
    ({"keys": "k.json", "schema": "json"}, "^keys has no effect with schema json"),
    ({"sign_key": ["x"]}, "^sign_key has no effect without keys"),
    ({"exchange": "shop"}, "^exchange has no effect without declare"),
    ({"declare": True, "routing_key": "k"}, "^routing_key without exchange"),
    ({"until_empty": "yes"}, "^until_empty takes True or False"),
    ({"reconnect_initial": 5, "reconnect_max": 1}, "^reconnect_initial is longer than reconnect_max"),
    ({"reconnect_multiplier": 0.5}, "^reconnect_multiplier takes a number of at least 1"),
    ({"set": {"heartbeat": 5}}, "^set takes a mapping of texts"),
    ({"group": "crm"}, "^group has no effect on the broker in memory"),
    ({"tag": "a\nb"}, "^tag is empty or contains control characters"),
    ({"rate": "fast"}, "^rate takes a rate such as"),
    ({"rate": 0}, "^rate takes a number per second"),
    ({"brake": -1}, "^brake takes a whole number from 0"),
    ({"management_url": "http://h"}, "^management_url has no effect here"),
    ({"retry_delay": 5, "on_failure": "retry:3"}, "^retry_delay takes durations"),
    ({"sign_key": 5}, "^sign_key takes a list of texts$"),
    ({"sign_key": [5]}, "^sign_key takes a list of texts$"),
    ({"handle": "x"}, "^handle takes a Handle, not str"),
    ({"on_event": "x"}, "^on_event takes a function, not 'x'"),
    ({"max_body": 0}, "^max_body takes a number of bytes"),
]


@pytest.mark.parametrize(("given", "why"), WRONG)
def test_a_wrong_option_is_refused_before_anything_is_reached(given: Any, why: str) -> None:
    """The command's own rules, in a program's words."""
    from chronicle.library.run import run

    with pytest.raises(SettingError, match=why):
        run(MemoryBroker(), "q", yes, **given)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'concurency'"):
        plan_run(MemoryBroker(), "q", yes, {"concurency": 3})  # type: ignore[typeddict-unknown-key]


def test_a_text_in_place_of_a_list_of_keys_is_not_shown() -> None:
    """D-21: it may be a private key."""
    with pytest.raises(SettingError) as caught:
        plan_run(MemoryBroker(), "q", yes, {"sign_key": CANARY})
    assert CANARY not in f"{caught.value}{caught.value.remedy}"


@pytest.mark.parametrize("url", [None, 5, b"local:q.db", object()])
def test_a_url_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(SettingError, match=r"^url takes a URL or a MemoryBroker, not "):
        plan_run(url, "q", yes, {})


@pytest.mark.parametrize("queue", [None, 5, b"q"])
def test_a_queue_that_is_no_text_is_refused(queue: Any) -> None:
    with pytest.raises(SettingError, match=r"^queue takes a text, not "):
        plan_run(MemoryBroker(), queue, yes, {})
    with pytest.raises(SettingError, match=r"^queue takes a text, not "):
        subscribe(MemoryBroker(), queue, RoutingKey("q", dict))


def test_what_a_subscription_is_given_is_checked() -> None:
    key: Any = "q"
    options: Any = 5
    with pytest.raises(SettingError, match=r"^routing_key takes a RoutingKey, not str"):
        subscribe(MemoryBroker(), "q", key)
    with pytest.raises(SettingError, match=r"^options takes a QueueOptions, not int"):
        subscribe(MemoryBroker(), "q", RoutingKey("q", dict), options)
    with pytest.raises(SettingError, match=r"^the key of a RoutingKey takes a text, not 5"):
        RoutingKey(options, dict)
