"""How memory search weighs vectors and words."""

from dataclasses import replace

import pytest

from foremind.app.configuration import load_settings
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.retrieval.search import favour_words

_POLICY = policy_for(CompanionSettings(), load_settings()).recall


@pytest.mark.parametrize(
    ("weights", "expected"),
    [((0.7, 0.3), (0.35, 0.65)), ((0.2, 0.8), (0.2, 0.8)), ((0.0, 0.0), (0.0, 0.0))],
)
def test_words_count_more_where_vectors_do_not_serve(
    weights: tuple[float, float], expected: tuple[float, float]
) -> None:
    """The weight of relevance as a whole stays, and a policy that favours words more."""
    policy = replace(_POLICY, vector_weight=weights[0], keyword_weight=weights[1])
    favouring = favour_words(policy)
    assert (favouring.vector_weight, favouring.keyword_weight) == pytest.approx(expected)
