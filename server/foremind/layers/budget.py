"""Who gets how much of the context. Pure.

The layers share a fixed part of the model's context. Each first takes what it needs of its own
share; what is left over then goes round by priority, so that what matters most is cut last.
"""

from collections.abc import Mapping, Sequence

from foremind.settings import LayerName

# In order of priority, with each layer's share of what all layers may take.
SHARES: dict[LayerName, float] = {
    "behaviours": 0.05,
    "state": 0.03,
    "profile": 0.12,
    "hot": 0.17,
    "scratchpad": 0.10,
    "opening": 0.04,
    "summary": 0.06,
    "topics": 0.08,
    "memories": 0.18,
    "episodes": 0.05,
    "questions": 0.02,
    "vault": 0.03,
    "library": 0.07,
}
MOST_PROFILE_TOKENS = 1000


def share_out(needs: Mapping[LayerName, Sequence[int]], tokens: int) -> dict[LayerName, int]:
    """Return how many of its lines each layer may keep, from its first on.

    Args:
        needs: for each layer the tokens of each of its lines, the most valuable first.
        tokens: what all of them may take together.
    """
    kept: dict[LayerName, int] = {}
    left = tokens
    for layer, lines in needs.items():
        kept[layer], used = _fitting(lines, int(tokens * SHARES[layer]))
        left -= used
    for layer in SHARES:
        lines = needs.get(layer, ())
        more, used = _fitting(lines[kept.get(layer, 0) :], left)
        if more:
            kept[layer] += more
            left -= used
    return kept


def _fitting(lines: Sequence[int], tokens: int) -> tuple[int, int]:
    """Return how many of `lines` fit into `tokens`, and what they take."""
    used = 0
    for count, cost in enumerate(lines):
        if used + cost > tokens:
            return count, used
        used += cost
    return len(lines), used
