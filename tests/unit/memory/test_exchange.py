"""A memory's vector is read in its exchange."""

import numpy as np
import pytest

from foremind.memory.exchange import NEIGHBOURS, Vector, read_in_exchange, reread
from foremind.storage.remembering import ExchangeTurn
from foremind.storage.turns import Speaker

NAMES: dict[Speaker, Vector] = {
    "user": np.eye(8, dtype=np.float32)[6],
    "companion": np.eye(8, dtype=np.float32)[7],
}


def exchange(*memories: int | None) -> list[ExchangeTurn]:
    """Turns with orthogonal vectors, speakers in turn, and the given memories."""
    speakers: tuple[Speaker, Speaker] = ("user", "companion")
    return [
        ExchangeTurn(number, speakers[number % 2], np.eye(8, dtype=np.float32)[number], memory)
        for number, memory in enumerate(memories)
    ]


def test_a_lone_turn_is_its_text_and_its_speakers_name() -> None:
    """In the shares 1 and 0.6, of length one."""
    vector = read_in_exchange(exchange(1), 0, NAMES)
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert vector[6] / vector[0] == pytest.approx(0.6)


def test_neighbours_count_by_their_distance() -> None:
    """Two on either side, those before more than those after."""
    vector = read_in_exchange(exchange(1, 2, 3, 4, 5), 2, NAMES)
    shares = {distance: vector[2 + distance] / vector[2] for distance in NEIGHBOURS}
    assert shares == pytest.approx(NEIGHBOURS)


def test_a_neighbour_without_a_vector_is_silence() -> None:
    """It is read when its own turn is judged."""
    around = exchange(1, 2)
    silent = [around[0], ExchangeTurn(1, "companion", None, 2)]
    np.testing.assert_allclose(
        read_in_exchange(silent, 0, NAMES), read_in_exchange(around[:1], 0, NAMES)
    )


def test_a_turn_rereads_the_memories_in_its_reach_and_no_others() -> None:
    """Its own is written by whoever inserts it."""
    around = exchange(10, None, 12, 13, 14, 15)
    assert set(reread(around, 3, NAMES)) == {12, 14, 15}
