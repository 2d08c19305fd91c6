"""The ring as one gateway sees it."""

from foremind.cluster.ring import SETTLE_S, Gateway, Ring

ONE, TWO = Gateway("one", "ws://one/v1/ws"), Gateway("two", "ws://two/v1/ws")


def test_a_ring_settles_once_nothing_has_changed_for_a_while() -> None:
    """By then the others see the same."""
    ring = Ring().updated([ONE], 100.0)
    assert not ring.settled(100.0 + SETTLE_S / 2)
    assert ring.updated([ONE], 100.0 + SETTLE_S / 2) is ring
    assert ring.settled(100.0 + SETTLE_S)
    joined = ring.updated([ONE, TWO], 200.0)
    assert not joined.settled(200.0)


def test_a_gateway_that_moved_is_a_change() -> None:
    """Its clients must be told the new URL."""
    ring = Ring().updated([ONE], 0.0)
    moved = ring.updated([Gateway("one", "ws://other/v1/ws")], 1.0)
    assert moved.owner(b"key") == Gateway("one", "ws://other/v1/ws")
    assert moved.since == 1.0


def test_an_empty_ring_has_no_owner() -> None:
    assert Ring().owner(b"key") is None
