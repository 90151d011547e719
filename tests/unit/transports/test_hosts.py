"""Passwords that end the hosts of a URL too early must not pass for names, which are printed (Z4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chronicle.errors import SettingError
from chronicle.transports.kafka.address import address_of as kafka
from chronicle.transports.rabbitmq.address import address_of as rabbitmq
from chronicle.transports.redis.address import address_of as redis

LOGINS = ("me:/s3cretpw", "me:12/s3cretpw", "me:s3cretpw/x", "me:1?s3cretpw", "me:p@rt/s3cretpw")


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize(
    ("address_of", "form"),
    [
        (rabbitmq, "amqp://{}@broker.example"),
        (rabbitmq, "amqps://{}@broker.example/vhost?heartbeat=5"),
        (redis, "redis://{}@broker.example/0"),
        (redis, "redis+sentinel://{}@h1,h2/0"),
        (redis, "redis+cluster://{}@h1"),
        (kafka, "kafka://{}@h1,h2:9093"),
    ],
)
def test_a_password_that_is_not_encoded_is_refused(
    address_of: Callable[[str], object], form: str, login: str
) -> None:
    with pytest.raises(SettingError) as caught:
        address_of(form.format(login))
    assert "percent-encode" in caught.value.remedy
    assert not any(part in f"{caught.value} {caught.value.remedy}" for part in ("s3cretpw", "broker", "h1"))


@pytest.mark.parametrize(
    ("address_of", "url", "password"),
    [
        (rabbitmq, "amqp://me:%2Fs%40@h/v%40x", "/s@"),
        (rabbitmq, "amqp://me:p@rt@h/", "p@rt"),
        (redis, "redis://me:%2Fs%3F@h/1", "/s?"),
        (kafka, "kafka://me:a%2Fb@h", "a/b"),
    ],
)
def test_one_that_is_encoded_is_taken(address_of: Callable[[str], Any], url: str, password: str) -> None:
    assert address_of(url).password == password
