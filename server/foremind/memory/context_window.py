"""What a memory is found by: what was said, read in its exchange, by whom. Pure.

"Yes, last Tuesday" means little alone, and people are asked about by a name that they seldom say
themselves. So a memory's vector is its own text's, moved towards its neighbours' in the session and
towards its speaker's name, and its words are its own and a share of theirs. All of these are made
anyway: no text is embedded twice.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import MemoryText, ReembeddedMemory
from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.text.tokenization import count_terms

Vector = npt.NDArray[np.float32]

# The share that a turn's neighbours have, by distance in turns; `docs/memory.md` says what it is
# worth. Wider exchanges gain nothing.
NEIGHBOURS = {-2: 0.2, -1: 0.5, 0: 1.0, 1: 0.3, 2: 0.1}
NAME = 0.6
REACH = max(NEIGHBOURS)


def read_in_exchange(
    around: Sequence[ExchangeTurn],
    position: int,
    names: Mapping[Speaker, Vector],
    counted: Callable[[str], Mapping[str, int]] = count_terms,
) -> MemoryText:
    """Return the text of the turn at `position` of `around`, read with the turns beside it.

    Neighbours without a vector are not judged yet and count as silence; `names` are the unit
    vectors of the names. `counted` counts the terms of a text.
    """
    total = NAME * names[around[position].speaker]
    terms: dict[str, float] = defaultdict(float)
    for distance, share in NEIGHBOURS.items():
        index = position + distance
        if not 0 <= index < len(around):
            continue
        vector = around[index].vector
        if vector is not None:
            total = total + share * vector
            for term, count in counted(around[index].content).items():
                terms[term] += share * count
    return MemoryText((total / np.linalg.norm(total)).astype(np.float32), dict(terms))


def read_alone(turn: ExchangeTurn, vector: Vector) -> MemoryText:
    """Return the text of a turn that is read by itself."""
    return MemoryText(vector, {term: float(n) for term, n in count_terms(turn.content).items()})


def reread(
    around: Sequence[ExchangeTurn], turn_id: int, names: Mapping[Speaker, Vector]
) -> dict[int, ReembeddedMemory]:
    """Return the new texts, by memory id, of the neighbours whose exchange a turn belongs to."""
    here = position_of(around, turn_id)
    counted = cache(count_terms)  # each is read with several others
    new_terms = frozenset(counted(around[here].content))
    return {
        each.memory_id: ReembeddedMemory(read_in_exchange(around, index, names, counted), new_terms)
        for index, each in enumerate(around)
        if each.memory_id is not None and 0 < abs(index - here) <= REACH
    }


def position_of(around: Sequence[ExchangeTurn], turn_id: int) -> int:
    """Return where a turn stands among those around it."""
    return next(index for index, each in enumerate(around) if each.id == turn_id)
