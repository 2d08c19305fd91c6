"""What is told of sessions."""

import uuid
from datetime import UTC, datetime

from foremind.background.episodes import without_room
from foremind.domain.record import Details, MadeBy, Record

AT = datetime(2026, 5, 20, 19, tzinfo=UTC)


def question(number: int, status: str = "open", made_by: MadeBy = "rules") -> Record:
    """A question that was left open, or settled."""
    return Record(
        number, "questions", "", "", f"What of {number}?", (), Details(status=status), None,
        made_by, uuid.UUID(int=number), AT, AT, 1,
    )  # fmt: skip


def test_questions_that_are_settled_make_room_first_and_none_that_somebody_wrote() -> None:
    """Of the others the oldest."""
    mine = [question(each, made_by="user") for each in range(3)]
    made = [question(each, "settled" if each == 20 else "open") for each in range(3, 53)]
    assert without_room([*mine, *made], 0) == []
    assert without_room([*mine, *made], 3) == [20, 3, 4]
