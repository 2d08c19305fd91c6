"""A prompt is laid out so that it begins like the one that the model has read."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.companion import Behaviour
from foremind.domain.memory import Recalled
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.prompt.prefill_chunks import shared
from foremind.llm.prompt.prefix_reuse import staying
from tests.unit.llm.prompt.test_layout import assembled, memory

PORTO, ANA, STORM = memory(1, "I live in Porto"), memory(2, "I am Ana"), memory(3, "It stormed")


def read_until_the_message(earlier: AssembledPrompt, later: AssembledPrompt) -> bool:
    """Tell whether everything before the earlier message begins the later prompt."""
    before = earlier.prompt.messages()
    stable = len("".join(each["content"] for each in before)) - len(earlier.prompt.message) - 2
    return shared(before, later.prompt.messages()) >= stable


def test_what_was_recalled_stays_and_what_is_new_follows() -> None:
    """The model has read everything but the new lines and the message."""
    earlier = assembled((PORTO, ANA), message="Do you know")
    laid = staying(earlier.prompt, assembled((STORM, PORTO, ANA), message="Do you know the storm?"))
    assert read_until_the_message(earlier, laid)
    content = laid.prompt.messages()[-1]["content"]
    assert content.index("Porto") < content.index("Today is") < content.index("It stormed")
    assert content.endswith("\n\nDo you know the storm?")
    assert laid.prompt.memories == (STORM, PORTO, ANA)


def test_what_is_not_recalled_any_more_stays_in_its_place() -> None:
    """Taking it out would have the model read everything after it again."""
    earlier = assembled((PORTO, ANA), message="Do you")
    laid = staying(earlier.prompt, assembled((PORTO,), message="Do you know?"))
    assert read_until_the_message(earlier, laid)
    assert [memory.id for memory in laid.prompt.memories] == [PORTO.id, ANA.id]


def test_it_goes_on_from_pause_to_pause() -> None:
    """Each time what is new follows what is there."""
    first = assembled((PORTO,), message="Do")
    second = staying(first.prompt, assembled((PORTO, ANA), message="Do you"))
    third = staying(second.prompt, assembled((PORTO, ANA, STORM), message="Do you know?"))
    assert read_until_the_message(second, third)
    assert [len(part) for part in third.prompt.added] == [1, 1]


def test_a_draft_that_turned_to_something_else_is_laid_out_anew() -> None:
    """Where less than half of what was recalled is still recalled."""
    earlier = assembled((PORTO, ANA, memory(4, "Porto is by the sea")), message="Where")
    fresh = assembled((STORM, PORTO), message="Where was the storm?")
    assert staying(earlier.prompt, fresh) is fresh


def test_another_beginning_is_laid_out_anew() -> None:
    """Another history or persona leaves nothing to be kept."""
    earlier = assembled((PORTO, ANA))
    fresh = assembled((PORTO, ANA, STORM), sections={"profile": ["- home: porto"]})
    assert staying(earlier.prompt, fresh) is fresh


def test_an_instruction_that_does_not_hold_is_not_left_there() -> None:
    """What the companion is told to do is as for the message alone."""
    behaviours = (Behaviour("lunch", "Mention lunch.", says=("hungry",)),)
    earlier = assembled((PORTO, ANA), message="I am hungry", behaviours=behaviours)
    fresh = assembled((PORTO, ANA, STORM), message="I am hungrier", behaviours=behaviours)
    assert earlier.prompt.instructions and staying(earlier.prompt, fresh) is fresh


def test_what_goes_on_is_as_the_game_told_it_last() -> None:
    """A flag of before is not left standing beside its new value."""
    earlier = assembled((PORTO, ANA), sections={"state": ["- door_open = true"]})
    same = assembled((PORTO, ANA, STORM), sections={"state": ["- door_open = true"]})
    assert staying(earlier.prompt, same) is not same
    fresh = assembled((PORTO, ANA, STORM), sections={"state": ["- door_open = false"]})
    assert staying(earlier.prompt, fresh) is fresh


def test_what_does_not_fit_is_laid_out_anew() -> None:
    """The layers never take more than their share."""
    earlier = assembled((PORTO, ANA))
    fresh = dataclasses.replace(assembled((PORTO,)), spare=5)
    assert staying(earlier.prompt, fresh) is fresh


MEMORIES = [memory(number, f"This is number {number}") for number in range(1, 9)]


@given(st.lists(st.sets(st.sampled_from(MEMORIES), max_size=6), min_size=2, max_size=5))
def test_nothing_that_was_recalled_is_ever_missing(recalled: list[set[Recalled]]) -> None:
    """Whatever came before: at least the same memories, the same history, the same message."""
    laid = None
    for number, found in enumerate(recalled):
        memories = tuple(sorted(found, key=lambda each: each.id))
        fresh = assembled(memories, message=f"draft {number}")
        laid = fresh if laid is None else staying(laid.prompt, fresh)
        content = laid.prompt.messages()[-1]["content"]
        assert all(
            memory.content in content and memory in laid.prompt.memories for memory in memories
        )
        assert laid.prompt.messages()[:-1] == fresh.prompt.messages()[:-1]
        assert content.endswith(f"draft {number}")
        assert all(memory.content in content for memory in laid.prompt.memories)
        assert sum(laid.tokens.values()) <= 16_384 * 0.2
