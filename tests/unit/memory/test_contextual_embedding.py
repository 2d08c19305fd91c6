"""Memories are indexed together with the turns around them."""

from dataclasses import replace

import numpy as np
import pytest

from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.memory.contextual_embedding import (
    NEIGHBOUR_WEIGHTS,
    Vector,
    contextual_text,
    reembed_neighbours,
    standalone_text,
)

NAMES: dict[Speaker, Vector] = {
    "user": np.eye(8, dtype=np.float32)[6],
    "companion": np.eye(8, dtype=np.float32)[7],
}


def exchange(*memories: int | None) -> list[ExchangeTurn]:
    """Turns with orthogonal vectors, alternating speakers, and the given memories."""
    speakers: tuple[Speaker, Speaker] = ("user", "companion")
    return [
        ExchangeTurn(
            number,
            speakers[number % 2],
            f"rain boat{number}",
            np.eye(8, dtype=np.float32)[number],
            memory,
        )
        for number, memory in enumerate(memories)
    ]


def test_a_turn_without_neighbours_is_its_text_and_its_speakers_name() -> None:
    """With the weights 1 and 0.6, normalized."""
    vector = contextual_text(exchange(1), 0, NAMES).vector
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert vector[6] / vector[0] == pytest.approx(0.6)


def test_neighbours_are_weighted_by_distance() -> None:
    """Two on either side, those before more than those after."""
    text = contextual_text(exchange(1, 2, 3, 4, 5), 2, NAMES)
    vector = text.vector
    weights = {distance: vector[2 + distance] / vector[2] for distance in NEIGHBOUR_WEIGHTS}
    assert weights == pytest.approx(NEIGHBOUR_WEIGHTS)
    frequencies = {distance: text.terms[f"boat{2 + distance}"] for distance in NEIGHBOUR_WEIGHTS}
    assert frequencies == pytest.approx(NEIGHBOUR_WEIGHTS)
    assert text.terms["rain"] == pytest.approx(sum(NEIGHBOUR_WEIGHTS.values()))


def test_a_neighbour_without_a_vector_is_ignored() -> None:
    """It contributes once it has been scored itself."""
    turn, neighbour = exchange(1, 2)
    unscored = replace(neighbour, vector=None)
    with_neighbour, alone = (
        contextual_text(turns, 0, NAMES) for turns in ([turn, unscored], [turn])
    )
    np.testing.assert_allclose(with_neighbour.vector, alone.vector)
    assert with_neighbour.terms == alone.terms


def test_a_turn_reembeds_the_memories_in_its_window_only() -> None:
    """And not its own, which is embedded when it is inserted."""
    texts = reembed_neighbours(exchange(10, None, 12, 13, 14, 15), {3}, NAMES)
    assert set(texts) == {12, 14, 15}
    assert texts[12].new_terms == {"rain", "boat3"}
    assert texts[12].text.terms["boat3"] == pytest.approx(0.3)


def test_a_turn_can_be_indexed_without_its_neighbours() -> None:
    """By its own vector and its own terms."""
    (turn,) = exchange(1)
    text = standalone_text(turn, NAMES["user"])
    np.testing.assert_array_equal(text.vector, NAMES["user"])
    assert text.terms == {"rain": 1.0, "boat0": 1.0}
