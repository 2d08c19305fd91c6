"""Who gets how much of the context."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.layers.budget import SHARES, share_out
from foremind.settings import LAYERS, LayerName

NEEDS = st.dictionaries(
    st.sampled_from(tuple(SHARES)), st.lists(st.integers(1, 400), max_size=40), max_size=12
)


def test_the_shares_make_a_whole() -> None:
    """Of every layer but the working window, which takes of the rest."""
    assert set(SHARES) == set(LAYERS) - {"working"}
    assert abs(sum(SHARES.values()) - 1) < 1e-9


@given(NEEDS, st.integers(0, 5000))
def test_no_more_is_given_than_there_is(needs: dict[LayerName, list[int]], tokens: int) -> None:
    """Whatever is asked for; and of each layer its first lines."""
    kept = share_out(needs, tokens)
    assert sum(sum(needs[layer][:count]) for layer, count in kept.items()) <= tokens
    assert all(0 <= count <= len(needs[layer]) for layer, count in kept.items())


@given(NEEDS, st.integers(0, 5000))
def test_every_layer_has_its_own_share(needs: dict[LayerName, list[int]], tokens: int) -> None:
    """However much the others want."""
    kept = share_out(needs, tokens)
    for layer, lines in needs.items():
        fitting = share_out({layer: lines}, int(tokens * SHARES[layer]))[layer]
        own = 0
        for cost in lines[:fitting]:
            own += cost
            if own > int(tokens * SHARES[layer]):
                break
        assert sum(lines[: kept[layer]]) >= min(own, int(tokens * SHARES[layer])) - max(
            lines, default=0
        )


def test_what_is_left_over_goes_to_what_matters_most() -> None:
    """The profile before episodes."""
    needs: dict[LayerName, list[int]] = {"episodes": [100] * 10, "profile": [100] * 10}
    kept = share_out(needs, 1200)
    assert kept == {"profile": 10, "episodes": 2}
