"""The memory of failed tries, for brokers that do not count."""

from __future__ import annotations

from chronicle.core.delivery import Envelope
from chronicle.engine.delays import Tries
from support.samples import delivery


def test_the_same_body_of_the_same_queue_counts_up() -> None:
    tries = Tries()
    assert [tries.another(delivery(b"a")) for _ in range(3)] == [1, 2, 3]
    assert tries.another(delivery(b"b")) == 1
    assert tries.another(delivery(b"a", queue="other")) == 1
    assert tries.another(delivery(b"a")) == 4


def test_D_2_what_the_broker_knows_counts_too() -> None:
    """A flag alone means a second try; a count in the headers may be higher than what was seen here."""
    tries = Tries()
    assert tries.another(delivery(b"a", redelivered=True)) == 2
    assert tries.another(delivery(b"a", envelope=Envelope({"x-delivery-count": 6}))) == 7
    assert tries.another(delivery(b"a", redelivered=True)) == 8


def test_it_is_bounded_and_forgets_the_oldest() -> None:
    tries = Tries(limit=3)
    for body in (b"a", b"b", b"c", b"a", b"d"):
        tries.another(delivery(body))
    assert tries.another(delivery(b"a")) == 3
    assert tries.another(delivery(b"b")) == 1, "the one not seen for longest was forgotten"
