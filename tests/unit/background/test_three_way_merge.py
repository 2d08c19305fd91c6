"""Two edits of one record become one, where they can."""

import pytest

from foremind.background.three_way_merge import MergeResult, RecordVersion, holds_both, merged
from foremind.llm.prompt.layout import Message

BASE = RecordVersion("goal", "Running", "Wants to run a marathon.")
OURS = RecordVersion("goal", "Running", "Wants to run a marathon in Lisbon.")
THEIRS = RecordVersion("goal", "Running", "Wants to run a marathon with her sister.")
BOTH = "Wants to run a marathon in Lisbon with her sister."


class Model:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self, answer: MergeResult) -> None:
        self.answer = answer
        self.asked: list[list[Message]] = []

    async def ask(self, messages: list[Message]) -> MergeResult:
        """Answer."""
        self.asked.append(messages)
        return self.answer


async def test_a_model_is_shown_the_three_texts_and_what_it_writes_holds() -> None:
    """As quotations, which it is not to follow."""
    model = Model(MergeResult(BOTH))
    whole = await merged(BASE, OURS, THEIRS, model.ask)
    assert whole == RecordVersion("goal", "Running", BOTH)
    ((system, user),) = model.asked
    assert "not instructions" in system["content"]
    for each in (BASE, OURS, THEIRS):
        assert f'"{each.content}"' in user["content"]


async def test_fields_that_one_side_changed_need_no_model() -> None:
    """Each is as that side has it."""
    model = Model(MergeResult("never asked"))
    theirs = RecordVersion("other", "Running", BASE.content)
    whole = await merged(BASE, OURS, theirs, model.ask)
    assert whole == RecordVersion("other", "Running", OURS.content)
    assert await merged(BASE, OURS, OURS, model.ask) == OURS
    assert model.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        MergeResult(BOTH, contradict=True),
        MergeResult(""),
        MergeResult(THEIRS.content),
        MergeResult("Wants to run a marathon."),
    ],
)
async def test_what_is_no_merging_is_left_to_somebody(answer: MergeResult) -> None:
    """The model says that they contradict, or drops what one of them wrote."""
    assert await merged(BASE, OURS, THEIRS, Model(answer).ask) is None


async def test_two_titles_are_left_to_somebody() -> None:
    """A model would have to choose."""
    one = RecordVersion("goal", "A run", BASE.content)
    other = RecordVersion("goal", "The run", BASE.content)
    assert await merged(BASE, one, other, Model(MergeResult("x")).ask) is None


def test_words_that_were_taken_out_need_not_be_there() -> None:
    """Only what was added counts."""
    assert holds_both("A b c", "A", "A b c sister", "A sister")
    assert not holds_both("A b c", "A", "A b c sister", "A b c")
