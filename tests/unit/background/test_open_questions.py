"""Eviction of the questions that episodes leave open."""

import uuid
from datetime import UTC, datetime

from foremind.background.open_questions import questions_to_evict
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
