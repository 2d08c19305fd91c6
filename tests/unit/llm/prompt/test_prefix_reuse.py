"""A prompt is laid out so that it shares a prefix with the one that the model has cached."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.companion_rules import Behaviour
from foremind.domain.memory import Recalled
from foremind.gateway.speculation import reuse_prefix
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.slots import shared_prefix_chars
from foremind.lore.lorebook import Placement
from tests.unit.llm.prompt.test_layout import assembled, lore_at, memory

PORTO, ANA, STORM = memory(1, "I live in Porto"), memory(2, "I am Ana"), memory(3, "It stormed")


def reuses_prefix(earlier: AssembledPrompt, later: AssembledPrompt) -> bool:
    """Return whether the earlier prompt up to its message is a prefix of the later one."""
    before = earlier.prompt.messages()
    stable = (
        len("".join(message["content"] for message in before)) - len(earlier.prompt.message) - 2
    )
    return shared_prefix_chars(before, later.prompt.messages()) >= stable


def test_new_sections_follow_those_recalled_before() -> None:
    """The model has cached everything but the new lines and the message."""
    earlier = assembled((PORTO, ANA), message="Do you know")
    laid = reuse_prefix(
        earlier.prompt, assembled((STORM, PORTO, ANA), message="Do you know the storm?")
    )
    assert reuses_prefix(earlier, laid)
    content = laid.prompt.messages()[-1]["content"]
    assert content.index("Porto") < content.index("Today is") < content.index("It stormed")
    assert content.endswith("\n\nDo you know the storm?")
    assert laid.prompt.memories == (STORM, PORTO, ANA)


def test_obsolete_sections_stay_in_their_place() -> None:
    """Removing them would invalidate the cache of everything after them."""
    earlier = assembled((PORTO, ANA), message="Do you")
    laid = reuse_prefix(earlier.prompt, assembled((PORTO,), message="Do you know?"))
    assert reuses_prefix(earlier, laid)
    assert [memory.id for memory in laid.prompt.memories] == [PORTO.id, ANA.id]


def test_prefixes_are_reused_across_several_pauses() -> None:
    """Each time, new sections are appended."""
    first = assembled((PORTO,), message="Do")
    second = reuse_prefix(first.prompt, assembled((PORTO, ANA), message="Do you"))
    third = reuse_prefix(second.prompt, assembled((PORTO, ANA, STORM), message="Do you know?"))
    assert reuses_prefix(second, third)
    assert [len(part) for part in third.prompt.added] == [1, 1]


def test_a_draft_with_another_subject_uses_a_fresh_layout() -> None:
    """If less than half of the recalled lines are recalled again."""
    earlier = assembled((PORTO, ANA, memory(4, "Porto is by the sea")), message="Where")
    fresh = assembled((STORM, PORTO), message="Where was the storm?")
    assert reuse_prefix(earlier.prompt, fresh) is fresh


def test_a_different_prefix_uses_a_fresh_layout() -> None:
    """With another history or persona nothing can be reused."""
    earlier = assembled((PORTO, ANA))
    fresh = assembled((PORTO, ANA, STORM), sections={"profile": ["- home: porto"]})
    assert reuse_prefix(earlier.prompt, fresh) is fresh


def test_lore_that_stands_last_leaves_what_precedes_it_in_place() -> None:
    """It comes and goes with the draft; what was recalled is where it was."""
    earlier = assembled((PORTO, ANA), message="Do you")
    lore = lore_at(Placement("recalled"))
    laid = reuse_prefix(earlier.prompt, assembled((PORTO,), message="Do you know?", lore=lore))
    assert reuses_prefix(earlier, laid)
    assert [memory.id for memory in laid.prompt.memories] == [PORTO.id, ANA.id]
    without = reuse_prefix(laid.prompt, assembled((PORTO,), message="Do you know it?"))
    assert "Of recalled." not in without.prompt.messages()[-1]["content"]


def test_lore_elsewhere_uses_a_fresh_layout() -> None:
    """The prompt differs before what was recalled."""
    earlier = assembled((PORTO, ANA), message="Do you")
    for place in (Placement("before_char"), Placement("depth", 1), Placement("depth", 0)):
        fresh = assembled((PORTO,), message="Do you know?", lore=lore_at(place))
        assert reuse_prefix(earlier.prompt, fresh) is fresh


def test_an_obsolete_instruction_is_not_kept() -> None:
    """Instructions are those for the message alone."""
    behaviours = (Behaviour("lunch", "Mention lunch.", says=("hungry",)),)
    earlier = assembled((PORTO, ANA), message="I am hungry", behaviours=behaviours)
    fresh = assembled((PORTO, ANA, STORM), message="I am hungrier", behaviours=behaviours)
    assert earlier.prompt.instructions and reuse_prefix(earlier.prompt, fresh) is fresh


def test_the_session_state_is_always_current() -> None:
    """An old flag is not kept next to its new value."""
    earlier = assembled((PORTO, ANA), sections={"state": ["- door_open = true"]})
    same = assembled((PORTO, ANA, STORM), sections={"state": ["- door_open = true"]})
    assert reuse_prefix(earlier.prompt, same) is not same
    fresh = assembled((PORTO, ANA, STORM), sections={"state": ["- door_open = false"]})
    assert reuse_prefix(earlier.prompt, fresh) is fresh


def test_a_layout_that_does_not_fit_is_not_reused() -> None:
    """The layers never exceed their share."""
    earlier = assembled((PORTO, ANA))
    fresh = dataclasses.replace(assembled((PORTO,)), spare=5)
    assert reuse_prefix(earlier.prompt, fresh) is fresh


MEMORIES = [memory(number, f"This is number {number}") for number in range(1, 9)]


@given(st.lists(st.sets(st.sampled_from(MEMORIES), max_size=6), min_size=2, max_size=5))
def test_nothing_that_was_recalled_is_missing(recalled: list[set[Recalled]]) -> None:
    """Whatever was cached: at least the same memories, the same history, the same message."""
    laid = None
    for number, memory_set in enumerate(recalled):
        memories = tuple(sorted(memory_set, key=lambda memory: memory.id))
        fresh = assembled(memories, message=f"draft {number}")
        laid = fresh if laid is None else reuse_prefix(laid.prompt, fresh)
        content = laid.prompt.messages()[-1]["content"]
        assert all(
            memory.content in content and memory in laid.prompt.memories for memory in memories
        )
        assert laid.prompt.messages()[:-1] == fresh.prompt.messages()[:-1]
        assert content.endswith(f"draft {number}")
        assert all(memory.content in content for memory in laid.prompt.memories)
        assert sum(laid.tokens.values()) <= 16_384 * 0.2
