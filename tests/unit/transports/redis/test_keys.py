"""The keys of one queue share a hash slot, or a cluster is refused (S6)."""

from __future__ import annotations

import pytest

from chronicle.errors import SettingError
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.keys import check_slot

CLUSTER = address_of("redis+cluster://localhost:7000", {})
ALONE = address_of("redis://localhost:6379/0", {})


def test_one_server_has_one_slot() -> None:
    check_slot(ALONE, "orders", "position")


def test_the_same_hash_tag() -> None:
    check_slot(CLUSTER, "{orders}", "{orders}.cursor", "x{orders}")


@pytest.mark.parametrize("names", [("orders",), ("{}orders",), ("{orders",), ("{orders}", "cursor")])
def test_no_hash_tag(names: tuple[str, ...]) -> None:
    with pytest.raises(SettingError, match="different nodes"):
        check_slot(CLUSTER, *names)


def test_another_hash_tag() -> None:
    with pytest.raises(SettingError) as refused:
        check_slot(CLUSTER, "{orders}", "{other}.cursor")
    assert "{orders}" in refused.value.remedy
