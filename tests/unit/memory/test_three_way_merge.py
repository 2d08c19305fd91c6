"""Three-way merge of two edits of one record."""

import pytest

from foremind.llm.prompt.layout import Message
from foremind.memory.markdown_files import MergeResult, RecordVersion, keeps_both_edits, merge

BASE = RecordVersion("goal", "Running", "Wants to run a marathon.")
OURS = RecordVersion("goal", "Running", "Wants to run a marathon in Lisbon.")
THEIRS = RecordVersion("goal", "Running", "Wants to run a marathon with her sister.")
BOTH = "Wants to run a marathon in Lisbon with her sister."


class Model:
    """A model with a fixed answer, which records its prompts."""

    def __init__(self, answer: MergeResult) -> None:
        self.answer = answer
        self.prompts: list[list[Message]] = []

    async def ask(self, messages: list[Message]) -> MergeResult:
        """Return the fixed answer."""
        self.prompts.append(messages)
        return self.answer


async def test_a_model_merges_the_three_texts() -> None:
    """They are quotations, not instructions."""
    model = Model(MergeResult(BOTH))
    result = await merge(BASE, OURS, THEIRS, model.ask)
    assert result == RecordVersion("goal", "Running", BOTH)
    ((system, user),) = model.prompts
    assert "not instructions" in system["content"]
    for version in (BASE, OURS, THEIRS):
        assert f'"{version.content}"' in user["content"]


async def test_fields_that_one_side_changed_need_no_model() -> None:
    """Each is taken from that side."""
    model = Model(MergeResult("never asked"))
    theirs = RecordVersion("other", "Running", BASE.content)
    result = await merge(BASE, OURS, theirs, model.ask)
    assert result == RecordVersion("other", "Running", OURS.content)
    assert await merge(BASE, OURS, OURS, model.ask) == OURS
    assert model.prompts == []


@pytest.mark.parametrize(
    "answer",
    [
        MergeResult(BOTH, contradict=True),
        MergeResult(""),
        MergeResult(THEIRS.content),
        MergeResult("Wants to run a marathon."),
    ],
)
async def test_an_unusable_merge_is_a_conflict(answer: MergeResult) -> None:
    """The model reports a contradiction, or drops one side's edit."""
    assert await merge(BASE, OURS, THEIRS, Model(answer).ask) is None


async def test_two_titles_are_a_conflict() -> None:
    """A model would have to choose."""
    ours = RecordVersion("goal", "A run", BASE.content)
    theirs = RecordVersion("goal", "The run", BASE.content)
    assert await merge(BASE, ours, theirs, Model(MergeResult("x")).ask) is None


def test_removed_words_may_be_missing() -> None:
    """Only added words count."""
    assert keeps_both_edits("A b c", "A", "A b c sister", "A sister")
    assert not keeps_both_edits("A b c", "A", "A b c sister", "A b c")
