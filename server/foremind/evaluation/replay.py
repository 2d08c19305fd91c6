"""Tells a dialogue to a companion through the real store, as if it happened."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from foremind.app import Core
from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.companion import CompanionFile, CompanionSettings
from foremind.domain.turn import OpenedSession
from foremind.evaluation.dialogues import Dialogue, DialogueTurn
from foremind.retrieval.embedding.priority_queue import Priority

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ReplayedDialogue:
    """A dialogue as far as it was told: the memory of each turn that was kept, by its id."""

    dialogue: Dialogue
    relationship_id: int
    memory_of: dict[str, int]

    @property
    def filler(self) -> list[DialogueTurn]:
        """The turns that were not worth keeping."""
        return [turn for turn in self.dialogue.turns if turn.id not in self.memory_of]


class VectorCache:
    """The vectors of texts that are needed again and again; as many as the dialogues hold."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[str, Vector] = {}

    async def of(self, text: str) -> Vector:
        """Return the vector of a query, made once."""
        if text not in self._known:
            self._known[text] = await self._core.embedder.embed_query(text, Priority.ENTER)
        return self._known[text]


#: Called when a session begins, before its first turn is told: what was told, that first turn.
BeforeSession = Callable[[ReplayedDialogue, DialogueTurn], Awaitable[None]]


async def tell(
    core: Core,
    dialogue: Dialogue,
    label: str,
    settings: CompanionSettings,
    vectors: VectorCache,
    advance: Callable[[int], None],
    before_session: BeforeSession | None = None,
) -> ReplayedDialogue:
    """Store a dialogue with a companion of its own, named by `label`, with these settings."""
    slug = f"eval-{dialogue.id}-{label}".lower()
    companion = await core.companions.put(
        CompanionFile(slug, dialogue.companion_name, "Evaluated.", settings=settings)
    )
    memory_of: dict[str, int] = {}
    for _, said in groupby(dialogue.turns, key=lambda turn: turn.session):
        turns = list(said)
        session = await core.turns.open_session(
            slug, dialogue.user_name, companion.id, turns[0].said_at
        )
        told = ReplayedDialogue(dialogue, session.relationship_id, memory_of)
        if before_session is not None:
            await before_session(told, turns[0])
        asked: tuple[str, int] | None = None  # the turn before: its id in the file and in the store
        for turn in turns:
            turn_id = await _tell_turn(core, session, turn)
            if turn_id is not None:
                core.rememberer.hand_over(turn_id, await vectors.of(turn.text))
                verdict = await core.rememberer.remember(session.relationship_id, turn_id)
                _note(memory_of, turn.id, verdict)
                if asked is not None and verdict is not None and _answers(verdict):
                    # The question was judged again with its answer; once more changes nothing.
                    again = await core.rememberer.remember(session.relationship_id, asked[1])
                    _note(memory_of, asked[0], again)
                asked = turn.id, turn_id
            advance(1)
    return told


async def _tell_turn(core: Core, session: OpenedSession, turn: DialogueTurn) -> int | None:
    """Store one turn; return its id."""
    if turn.speaker == "user":
        return (await core.turns.commit_message(session, turn.id, turn.text, turn.said_at)).id
    return await core.turns.commit_reply(session, None, "completed", turn.text, turn.said_at)


def _note(memory_of: dict[str, int], turn: str, verdict: MemoryAnnouncement | None) -> None:
    if verdict is not None and verdict.memory_id is not None:
        memory_of[turn] = verdict.memory_id


def _answers(verdict: MemoryAnnouncement) -> bool:
    return any(reason.name == "answer" for reason in verdict.reasons)
