"""How a memory is indexed: its text, the turns around it, and its speaker's name. Pure.

"Yes, last Tuesday" means little by itself, and people are searched for by a name that they seldom
say. So a memory's vector is that of its own text, shifted towards those of the neighbouring turns
in its session and towards its speaker's name, and its terms are its own plus a weighted share of
the neighbours'. All of these vectors exist already: no text is embedded twice.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import MemoryText, ReembeddedMemory
from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.text.languages.language_files import ENGLISH
from foremind.text.tokenization import count_terms

Vector = npt.NDArray[np.float32]

# Weight of each turn by its distance; `docs/memory.md` reports what this is worth. A wider window
# gains nothing.
NEIGHBOUR_WEIGHTS = {-2: 0.2, -1: 0.5, 0: 1.0, 1: 0.3, 2: 0.1}
NAME_WEIGHT = 0.6
WINDOW_RADIUS = max(NEIGHBOUR_WEIGHTS)


def contextual_text(
    turns: Sequence[ExchangeTurn],
    position: int,
    names: Mapping[Speaker, Vector],
    term_counter: Callable[[str], Mapping[str, int]] = count_terms,
) -> MemoryText:
    """Return the text of the turn at `position`, combined with that of its neighbours.

    Neighbours without a vector have not been judged yet and do not contribute.

    Args:
        turns: consecutive turns of one session.
        names: unit vectors of the speakers' names, float32 [dimension].
        term_counter: counts the terms of a text.
    """
    total = NAME_WEIGHT * names[turns[position].speaker]
    terms: dict[str, float] = defaultdict(float)
    for distance, weight in NEIGHBOUR_WEIGHTS.items():
        index = position + distance
        if not 0 <= index < len(turns):
            continue
        vector = turns[index].vector
        if vector is not None:
            total = total + weight * vector
            for term, count in term_counter(turns[index].content).items():
                terms[term] += weight * count
    return MemoryText((total / np.linalg.norm(total)).astype(np.float32), dict(terms))


def standalone_text(turn: ExchangeTurn, vector: Vector, fallback: str = ENGLISH) -> MemoryText:
    """Return the text of a turn without its neighbours."""
    return MemoryText(
        vector, {term: float(count) for term, count in count_terms(turn.content, fallback).items()}
    )


def reembed_neighbours(
    turns: Sequence[ExchangeTurn],
    changed: Collection[int],
    names: Mapping[Speaker, Vector],
    fallback: str = ENGLISH,
) -> dict[int, ReembeddedMemory]:
    """Return new texts, by memory id, for the memories whose context windows include some turns.

    Args:
        turns: consecutive turns of one session, at least around those that `changed`, by id.
    """
    term_counter = cache(
        partial(count_terms, fallback=fallback)
    )  # each turn is part of several windows
    reembedded: dict[int, ReembeddedMemory] = {}
    for position, turn in enumerate(turns):
        near = turns[max(0, position - WINDOW_RADIUS) : position + WINDOW_RADIUS + 1]
        new = [other for other in near if other.id in changed and other.id != turn.id]
        if turn.memory_id is not None and new:
            new_terms = frozenset(term for other in new for term in term_counter(other.content))
            text = contextual_text(turns, position, names, term_counter)
            reembedded[turn.memory_id] = ReembeddedMemory(text, new_terms)
    return reembedded


def position_of(turns: Sequence[ExchangeTurn], turn_id: int) -> int:
    """Return the position of a turn among others."""
    return next(position for position, turn in enumerate(turns) if turn.id == turn_id)
