"""How much of a draft's prompt the model prefills before Enter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.turn import Trigger
from foremind.gateway.speculation import (
    MAX_PREFILLS,
    MAX_SETTLED_PREFILLS,
    part_to_prefill,
)

TRIGGERS: tuple[Trigger, ...] = ("eager", "pause")


def test_from_the_third_word_on_every_draft_that_settles_is_read_to_its_end() -> None:
    """However little was typed since the last."""
    for prefills, draft in enumerate(("I won a", "I won a prize", "I won a prize!")):
        assert part_to_prefill(draft, "eager", prefills) == "all"


@pytest.mark.parametrize(
    "draft", ["昨日、川で魚を", "我昨天在河边钓鱼", "어제강에서낚시", "เมื่อวานฉันไป"]
)
def test_a_long_draft_without_spaces_is_read_to_its_end_whenever_it_settles(draft: str) -> None:
    """As one of several words is; its beginning is not."""
    assert part_to_prefill(draft, "eager", 1) == "all"
    assert part_to_prefill(draft[:3], "eager", 1) is None


def test_a_short_draft_is_read_at_its_end() -> None:
    """At a pause, or as a sentence; before that only what does not depend on it."""
    assert part_to_prefill("Like", "eager", 0) == "beginning"
    assert part_to_prefill("Like it", "eager", 1) is None
    assert part_to_prefill("Like it?", "eager", 1) == "all"
    assert part_to_prefill("Like it? ", "eager", 1) == "all"
    assert part_to_prefill("Like it", "pause", 1) == "all"


@given(st.text(), st.sampled_from(TRIGGERS), st.integers(0, 2 * MAX_PREFILLS))
def test_prefills_of_a_message_are_limited(draft: str, trigger: Trigger, prefills: int) -> None:
    """Some are reserved for pauses."""
    part = part_to_prefill(draft, trigger, prefills)
    if prefills >= (MAX_PREFILLS if trigger == "pause" else MAX_SETTLED_PREFILLS):
        assert part is None
    elif trigger == "pause":
        assert part == "all"
