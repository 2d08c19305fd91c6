"""The dialogues and questions of an evaluation, independent of the file format."""

from dataclasses import dataclass
from datetime import datetime

from foremind.domain.turn import Speaker


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """One turn; questions refer to its `id`, and turns of one `session` are consecutive."""

    id: str
    session: str
    speaker: Speaker
    text: str
    said_at: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ids of the turns that answer it.

    `asked_before` names the session at whose start the question is asked; None asks it a day after
    the last turn.
    """

    text: str
    evidence: frozenset[str]
    asked_before: str | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The turns of one user and one companion, and the questions about them."""

    id: str
    user_name: str
    companion_name: str
    turns: tuple[DialogueTurn, ...]
    questions: tuple[Question, ...]
