"""What an evaluation tells and asks, whatever file it came from."""

from dataclasses import dataclass
from datetime import datetime

from foremind.domain.turn import Speaker


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """One turn; `id` is what questions refer to, turns of one `session` follow each other."""

    id: str
    session: str
    speaker: Speaker
    text: str
    said_at: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ids of the turns that answer it.

    `asked_before` is the session at whose beginning it is asked, before any of it is said; None for
    a question that is asked a day after the last turn.
    """

    text: str
    evidence: frozenset[str]
    asked_before: str | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Everything between one user and one companion, and what is asked about it."""

    id: str
    user_name: str
    companion_name: str
    turns: tuple[DialogueTurn, ...]
    questions: tuple[Question, ...]
