"""Who owns a relationship: everyone computes the same, and a change moves only what it must."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from foremind.cluster.ring import owner_of, relationship_key

names = st.sets(st.text("abcdefgh-123", min_size=1, max_size=8), min_size=1, max_size=8)
keys = st.lists(
    st.builds(relationship_key, st.text(min_size=1, max_size=12), st.just("wren")),
    min_size=1,
    max_size=50,
)


@given(names, keys, st.data())
def test_everyone_computes_the_same_owner(
    names: set[str], keys: list[bytes], data: st.DataObject
) -> None:
    """In whatever order the gateways are listed."""
    listed = data.draw(st.permutations(sorted(names)))
    for key in keys:
        assert owner_of(key, listed) == owner_of(key, sorted(names))
        assert owner_of(key, listed) in names


@given(names, keys, st.just("newcomer"))
def test_who_joins_takes_over_only_what_it_owns(
    names: set[str], keys: list[bytes], newcomer: str
) -> None:
    """No relationship moves between two gateways that were there before."""
    for key in keys:
        before, after = owner_of(key, names), owner_of(key, names | {newcomer})
        assert after in {before, newcomer}


@given(names, keys, st.data())
def test_who_leaves_gives_up_only_what_it_owned(
    names: set[str], keys: list[bytes], data: st.DataObject
) -> None:
    """What the others own stays where it is."""
    leaving = data.draw(st.sampled_from(sorted(names)))
    for key in keys:
        before = owner_of(key, names)
        if before != leaving:
            assert owner_of(key, names - {leaving}) == before


def test_relationships_spread_evenly() -> None:
    """Each of four gateways owns about a quarter of 10,000."""
    gateways = [f"gateway-{number}" for number in range(4)]
    owners = Counter(
        owner_of(relationship_key(f"u{number}", "wren"), gateways) for number in range(10_000)
    )
    assert set(owners) == set(gateways)
    assert all(2300 < count < 2700 for count in owners.values()), owners


def test_user_and_companion_are_told_apart() -> None:
    """However their names could be joined."""
    assert relationship_key("ab", "c") != relationship_key("a", "bc")


def test_nobody_owns_anything_without_gateways() -> None:
    assert owner_of(b"key", []) is None
