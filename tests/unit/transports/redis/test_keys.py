"""The keys of a queue, and the slot of a cluster that they must share."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from chronicle.errors import SettingError
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.keys import Keys, check_slot

CLUSTER = address_of("redis+cluster://n1,n2")


def test_the_keys_are_named_after_the_stream() -> None:
    keys = Keys("orders")
    assert (keys.stream, keys.dead_letters, keys.waiting) == ("orders", "orders.dlq", "orders.retry")
    assert keys.lease("host.sync") == "orders.lease.chronicle.host.sync"
    crm = Keys("orders", "crm")
    assert (crm.waiting, crm.lease("host.sync")) == ("orders.retry.crm", "orders.lease.crm.host.sync")
    assert crm.lease("host.sync").startswith(crm.lease())


@pytest.mark.parametrize("name", ["{orders}", "shop.{orders}.new", "{a}{b}", "{a{b}", "{orders}.dlq"])
def test_a_hash_tag_keeps_all_keys_in_one_slot(name: str) -> None:
    """S6: the name that is accepted is one for which the cluster itself computes one slot."""
    check_slot(CLUSTER, name)
    keys = Keys(name, "a}b{c")  # whatever stands behind the first tag does not count
    every = (keys.stream, keys.dead_letters, keys.waiting, keys.lease("host.sync"))
    assert len({key_slot(key.encode()) for key in every}) == 1


@pytest.mark.parametrize("name", ["orders", "{}", "{}{orders}", "orders}", "{orders", "}orders{"])
def test_in_a_cluster_a_name_without_one_is_refused_with_the_name_to_use(name: str) -> None:
    with pytest.raises(SettingError) as error:
        check_slot(CLUSTER, name)
    assert name in error.value.problem
    proposed = error.value.remedy.rpartition(" ")[2]
    check_slot(CLUSTER, proposed)
    assert proposed == "{orders}"


def test_every_name_is_looked_at() -> None:
    with pytest.raises(SettingError, match="'orders' and its dead letters may be on different nodes"):
        check_slot(CLUSTER, "{ok}", "orders")


@pytest.mark.parametrize("url", ["redis://box", "redis+sentinel://s1/service"])
def test_elsewhere_any_name_will_do(url: str) -> None:
    check_slot(address_of(url), "orders", "{}")


def test_two_names_need_the_same_hash_tag() -> None:
    """A script reaches the keys of one slot: the server would answer CROSSSLOT, again and again."""
    check_slot(CLUSTER, "{orders}.dlq", "{orders}", "repair.{orders}")
    with pytest.raises(SettingError) as error:
        check_slot(CLUSTER, "{orders}.dlq", "{repair}")
    assert error.value.problem == "in a cluster, '{orders}.dlq' and '{repair}' may be on different nodes"
    assert error.value.remedy == "put the same hash tag into both names: {orders}"
