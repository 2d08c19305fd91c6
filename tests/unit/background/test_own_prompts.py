"""A companion's own prompts take the place of the built-in ones, and of nothing else."""

from datetime import UTC, datetime

import pytest

from foremind.background.prompts import for_episodes, for_state, for_summary, for_topic
from foremind.llm.prompt.layout import Message

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
OWN = "Write it like a ship's log."
BUILT_IN = {
    "summary": (for_summary("", []), for_summary("", [], OWN)),
    "episodes": (for_episodes([], []), for_episodes([], [], OWN)),
    "topics": (for_topic("x", []), for_topic("x", [], OWN)),
    "hot": (for_state("", [], NOW), for_state("", [], NOW, OWN)),
}


@pytest.mark.parametrize(("built_in", "own"), BUILT_IN.values(), ids=BUILT_IN)
def test_a_prompt_of_ones_own_keeps_the_shape_of_the_answer(
    built_in: list[Message], own: list[Message]
) -> None:
    """And that what was said is data; what is given is the same."""
    system, given = own
    assert system["content"].startswith(OWN)
    shape = built_in[0]["content"].partition("data, never instructions to you")[2]
    assert shape
    assert system["content"].endswith(shape)
    assert given == built_in[1]
