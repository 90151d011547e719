"""librdkafka's own lines in our log: few, masked, and counted."""

from __future__ import annotations

import logging
from collections import deque

from chronicle.core.notice import Notice
from chronicle.transports.kafka.address import address_of
from chronicle.transports.kafka.chatter import EVENT, LONGEST, Chatter

SECRET = "hunter22"
TEMPLATE = "%s [%s] %s"  # the client's
DOWN = "[thrd:h1:9092/bootstrap]: h1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def heard() -> tuple[Chatter, deque[Notice], Clock]:
    notices: deque[Notice] = deque()
    clock = Clock()
    return Chatter(address_of(f"kafka://me:{SECRET}@h1"), notices, clock), notices, clock


def test_K7_at_most_one_line_a_second_and_how_many_it_stands_for() -> None:
    chatter, notices, clock = heard()
    for tick in range(200):  # ten seconds of brokers that are away
        clock.now = 100.0 + tick / 20
        chatter.log(logging.ERROR, TEMPLATE, "FAIL", "rdkafka#consumer-1", DOWN)
    assert 9 <= len(notices) <= 11
    assert [notice.facts.get("count", 1) for notice in notices][:3] == [1, 20, 20]


def test_a_line_is_a_notice_without_the_clients_thread() -> None:
    """Chronicle tells itself what it means, so it is no error."""
    chatter, notices, _ = heard()
    chatter.log(logging.ERROR, TEMPLATE, "FAIL", "rdkafka#consumer-1", DOWN)
    (notice,) = notices
    assert (notice.event, notice.level, notice.facts) == (EVENT, logging.WARNING, {"facility": "FAIL"})
    assert notice.text.startswith("h1:9092/bootstrap: Connect to")


def test_what_is_only_information_is_for_debugging() -> None:
    chatter, notices, _ = heard()
    chatter.log(logging.INFO, TEMPLATE, "GETSUBSCRIPTIONS", "rdkafka#consumer-1", "[thrd:main]: nothing")
    assert notices[0].level == logging.DEBUG


def test_a_setting_for_the_other_kind_of_client_is_not_told() -> None:
    chatter, notices, _ = heard()
    text = "[thrd:app]: Configuration property linger.ms is a producer property and will be ignored by this"
    chatter.log(logging.WARNING, TEMPLATE, "CONFWARN", "rdkafka#consumer-1", text)
    chatter.log(logging.WARNING, TEMPLATE, "CONFWARN", "rdkafka#consumer-1", "[thrd:app]: deprecated")
    assert [notice.text for notice in notices] == ["deprecated"]


def test_Z4_the_password_never_shows_and_a_line_is_bounded() -> None:
    chatter, notices, _ = heard()
    chatter.log(logging.ERROR, TEMPLATE, "FAIL", "rdkafka#consumer-1", f"{SECRET} {'x' * 5000}")
    assert SECRET not in notices[0].text
    assert len(notices[0].text) == LONGEST


def test_a_line_of_another_form_is_told_as_it_is() -> None:
    chatter, notices, clock = heard()
    chatter.log(logging.ERROR, "plain")
    clock.now += 2
    chatter.log(logging.ERROR, "%s", "one part")
    assert [notice.text for notice in notices] == ["plain", "one part"]
