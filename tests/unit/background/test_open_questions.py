"""Which questions are the same one, and which are evicted."""

import uuid
from datetime import UTC, datetime

import pytest

from foremind.background.episodes import ask_the_same, questions_to_evict
from foremind.domain.record import Details, MadeBy, Record

AT = datetime(2026, 5, 20, 19, tzinfo=UTC)


def question(number: int, status: str = "open", made_by: MadeBy = "rules") -> Record:
    """An open or settled question."""
    return Record(
        number, "questions", "", "", f"What of {number}?", (), Details(status=status), None,
        made_by, uuid.UUID(int=number), AT, AT, 1,
    )  # fmt: skip


def test_settled_questions_are_evicted_first_and_manual_ones_never() -> None:
    """Then the oldest."""
    manual = [question(number, made_by="user") for number in range(3)]
    generated = [question(number, "settled" if number == 20 else "open") for number in range(3, 53)]
    assert questions_to_evict([*manual, *generated], 0) == []
    assert questions_to_evict([*manual, *generated], 3) == [20, 3, 4]


@pytest.mark.parametrize(
    ("question", "other", "same"),
    [
        ("Should I meet Anna in Porto?", "Should I meet Bela in Porto?", False),
        ("When is the exam on Monday?", "When is the exam on Tuesday?", False),
        ("Who painted the kitchen?", "Who painted the bedroom?", False),
        ("Shall we take 2 boats?", "Shall we take 3 boats?", False),
        ("Should I sell the boat to Rui?", "Should I sell the boat to Eva?", False),
        ("Why did the lamp break?", "Why did the lamp fall?", False),
        ("Should I take the job?", "Do I take the job or not?", True),
        ("Should I take the job?", "Should I take the job in Porto?", True),
        ("Who has the keys?", "who has the key", True),
    ],
)
def test_questions_with_a_word_of_their_own_are_not_the_same(
    question: str, other: str, same: bool
) -> None:
    """However close their vectors are."""
    assert ask_the_same(question, other) == ask_the_same(other, question) == same
