"""Two edits of one record become one, where they can."""

import pytest

from foremind.curation.merging import Merged, Written, holds_both, merged
from foremind.generation.prompt import Message

BASE = Written("goal", "Running", "Wants to run a marathon.")
OURS = Written("goal", "Running", "Wants to run a marathon in Lisbon.")
THEIRS = Written("goal", "Running", "Wants to run a marathon with her sister.")
BOTH = "Wants to run a marathon in Lisbon with her sister."


class Model:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self, answer: Merged) -> None:
        self.answer = answer
        self.asked: list[list[Message]] = []

    async def ask(self, messages: list[Message]) -> Merged:
        """Answer."""
        self.asked.append(messages)
        return self.answer


async def test_a_model_is_shown_the_three_texts_and_what_it_writes_holds() -> None:
    """As quotations, which it is not to follow."""
    model = Model(Merged(BOTH))
    whole = await merged(BASE, OURS, THEIRS, model.ask)
    assert whole == Written("goal", "Running", BOTH)
    ((system, user),) = model.asked
    assert "not instructions" in system["content"]
    for each in (BASE, OURS, THEIRS):
        assert f'"{each.content}"' in user["content"]


async def test_fields_that_one_side_changed_need_no_model() -> None:
    """Each is as that side has it."""
    model = Model(Merged("never asked"))
    theirs = Written("other", "Running", BASE.content)
    whole = await merged(BASE, OURS, theirs, model.ask)
    assert whole == Written("other", "Running", OURS.content)
    assert await merged(BASE, OURS, OURS, model.ask) == OURS
    assert model.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        Merged(BOTH, contradict=True),
        Merged(""),
        Merged(THEIRS.content),
        Merged("Wants to run a marathon."),
    ],
)
async def test_what_is_no_merging_is_left_to_somebody(answer: Merged) -> None:
    """The model says that they contradict, or drops what one of them wrote."""
    assert await merged(BASE, OURS, THEIRS, Model(answer).ask) is None


async def test_two_titles_are_left_to_somebody() -> None:
    """A model would have to choose."""
    one = Written("goal", "A run", BASE.content)
    other = Written("goal", "The run", BASE.content)
    assert await merged(BASE, one, other, Model(Merged("x")).ask) is None


def test_words_that_were_taken_out_need_not_be_there() -> None:
    """Only what was added counts."""
    assert holds_both("A b c", "A", "A b c sister", "A sister")
    assert not holds_both("A b c", "A", "A b c sister", "A b c")
