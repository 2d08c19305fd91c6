"""A memory is read in its exchange."""

import numpy as np
import pytest

from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.memory.context_window import NEIGHBOURS, Vector, read_alone, read_in_exchange, reread

NAMES: dict[Speaker, Vector] = {
    "user": np.eye(8, dtype=np.float32)[6],
    "companion": np.eye(8, dtype=np.float32)[7],
}


def exchange(*memories: int | None) -> list[ExchangeTurn]:
    """Turns with orthogonal vectors, speakers in turn, and the given memories."""
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


def test_a_lone_turn_is_its_text_and_its_speakers_name() -> None:
    """In the shares 1 and 0.6, of length one."""
    vector = read_in_exchange(exchange(1), 0, NAMES).vector
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert vector[6] / vector[0] == pytest.approx(0.6)


def test_neighbours_count_by_their_distance() -> None:
    """Two on either side, those before more than those after."""
    text = read_in_exchange(exchange(1, 2, 3, 4, 5), 2, NAMES)
    vector = text.vector
    shares = {distance: vector[2 + distance] / vector[2] for distance in NEIGHBOURS}
    assert shares == pytest.approx(NEIGHBOURS)
    words = {distance: text.terms[f"boat{2 + distance}"] for distance in NEIGHBOURS}
    assert words == pytest.approx(NEIGHBOURS)
    assert text.terms["rain"] == pytest.approx(sum(NEIGHBOURS.values()))


def test_a_neighbour_without_a_vector_is_silence() -> None:
    """It is read when its own turn is judged."""
    around = exchange(1, 2)
    silent = [around[0], ExchangeTurn(1, "companion", "rain boat1", None, 2)]
    with_silence, alone = (read_in_exchange(each, 0, NAMES) for each in (silent, around[:1]))
    np.testing.assert_allclose(with_silence.vector, alone.vector)
    assert with_silence.terms == alone.terms


def test_a_turn_rereads_the_memories_in_its_reach_and_no_others() -> None:
    """Its own is written by whoever inserts it."""
    around = exchange(10, None, 12, 13, 14, 15)
    readings = reread(around, 3, NAMES)
    assert set(readings) == {12, 14, 15}
    assert readings[12].new_terms == {"rain", "boat3"}
    assert readings[12].text.terms["boat3"] == pytest.approx(0.3)


def test_a_turn_may_be_read_alone() -> None:
    """Its own vector and its own words."""
    (turn,) = exchange(1)
    text = read_alone(turn, NAMES["user"])
    np.testing.assert_array_equal(text.vector, NAMES["user"])
    assert text.terms == {"rain": 1.0, "boat0": 1.0}
