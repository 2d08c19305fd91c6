"""Answers that repeat their prompt, as small models write them, add nothing."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from foremind.background.example_echoes import repeats_example
from foremind.background.extractive_summary import Utterance
from foremind.background.notes import valid_operations
from foremind.background.profile_extraction import valid_entries
from foremind.background.prompts import (
    CoreMemoryAnswer,
    EpisodesAnswer,
    NotesAnswer,
    ProfileAnswer,
    SummaryAnswer,
    TopicAnswer,
    core_memory_prompt,
    episodes_prompt,
    notes_prompt,
    profile_prompt,
    summary_prompt,
    topic_prompt,
)
from foremind.domain.companion import KINDS, PROFILE_SLOTS, ProfileRules, ScratchpadRules
from foremind.llm.answer_fitting import UnparsableAnswer
from foremind.llm.answer_parsing import parse_answer
from foremind.llm.prompt.layout import Message

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
PROMPTS: dict[type[msgspec.Struct], Callable[[], list[Message]]] = {
    NotesAnswer: lambda: notes_prompt(ScratchpadRules(kinds=KINDS), [], []),
    ProfileAnswer: lambda: profile_prompt(ProfileRules(slots=PROFILE_SLOTS), []),
    SummaryAnswer: lambda: summary_prompt("", []),
    EpisodesAnswer: lambda: episodes_prompt([], []),
    TopicAnswer: lambda: topic_prompt("boats", []),
    CoreMemoryAnswer: lambda: core_memory_prompt("", [], NOW),
}


@pytest.mark.parametrize("shape", PROMPTS, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize(
    "form", ["{}", "Sure! Here it is:\n```json\n{}\n```", "<think>x</think>{}"]
)
def test_the_form_of_the_answer_is_no_answer(shape: type[msgspec.Struct], form: str) -> None:
    """A model that writes down the form it was shown says nothing, in any layer."""
    shown = PROMPTS[shape]()[0]["content"].partition("JSON only: ")[2]
    assert shown
    try:
        answer = parse_answer(form.replace("{}", shown), shape, prose=True).value
    except UnparsableAnswer:
        return
    if isinstance(answer, NotesAnswer):
        assert valid_operations(answer.operations, KINDS, set(range(1, 100))) == []
    elif isinstance(answer, ProfileAnswer):
        assert valid_entries(answer.entries, PROFILE_SLOTS, (1,)) == []
    else:
        assert not any(msgspec.structs.astuple(answer))


def test_an_own_example_counts_only_where_it_was_said() -> None:
    """A companion's examples are facts of nobody; whoever says the same has said it."""
    examples = ["Eats no onions"]
    weather = [Utterance(1, "Ana", True, "Nice weather.", 0.1)]
    onions = [Utterance(2, "Ana", True, "No onions for me!", 0.6)]
    assert repeats_example("eats no onions.", examples, weather)
    assert not repeats_example("Eats no onions", examples, onions)
    assert not repeats_example("Eats no garlic", examples, weather)
    assert not repeats_example("", examples, weather)
