"""Replay a dialogue with a companion through the real store, as if it took place."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from foremind.app.core import Core
from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.turn import OpenedSession
from foremind.retrieval.embedding.service import Priority
from foremind_eval.dialogues import Dialogue, DialogueTurn

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ReplayedDialogue:
    """A dialogue replayed so far; `memory_of` maps the ids of turns that were kept to memories."""

    dialogue: Dialogue
    relationship_id: int
    memory_of: dict[str, int]

    @property
    def filler(self) -> list[DialogueTurn]:
        """The turns that did not become memories."""
        return [turn for turn in self.dialogue.turns if turn.id not in self.memory_of]


class VectorCache:
    """Vectors of texts that are embedded repeatedly; bounded only by the dialogues' texts."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._vectors: dict[str, Vector] = {}

    async def embed(self, text: str) -> Vector:
        """Return the vector of a query, embedding it the first time."""
        if text not in self._vectors:
            self._vectors[text] = await self._core.embedder.embed_query(text, Priority.ENTER)
        return self._vectors[text]


#: Called before a session's first turn is stored, with the dialogue so far and that turn.
BeforeSession = Callable[[ReplayedDialogue, DialogueTurn], Awaitable[None]]


async def replay_dialogue(
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
    companion = await core.stores.companions.put(
        CompanionFile(slug, dialogue.companion_name, "Evaluated.", settings=settings)
    )
    memory_of: dict[str, int] = {}
    for _, session_turns in groupby(dialogue.turns, key=lambda turn: turn.session):
        turns = list(session_turns)
        session = await core.stores.turns.open_session(
            slug, dialogue.user_name, companion.id, turns[0].said_at
        )
        replayed = ReplayedDialogue(dialogue, session.relationship_id, memory_of)
        if before_session is not None:
            await before_session(replayed, turns[0])
        previous: tuple[str, int] | None = None  # ids of the turn before: in the file, in the store
        for turn in turns:
            turn_id = await _store_turn(core, session, turn)
            if turn_id is not None:
                core.ingester.cache_turn(turn_id, turn.text, await vectors.embed(turn.text))
                outcome = await core.ingester.ingest(session.relationship_id, turn_id)
                _record_memory(memory_of, turn.id, outcome)
                if previous is not None and outcome is not None and _is_answer(outcome):
                    # The question was rescored with its answer; this only reads the outcome.
                    rescored = await core.ingester.ingest(session.relationship_id, previous[1])
                    _record_memory(memory_of, previous[0], rescored)
                previous = turn.id, turn_id
            advance(1)
    return replayed


async def _store_turn(core: Core, session: OpenedSession, turn: DialogueTurn) -> int | None:
    """Store one turn; return its id."""
    if turn.speaker == "user":
        return (
            await core.stores.turns.commit_message(session, turn.id, turn.text, turn.said_at)
        ).id
    return await core.stores.turns.commit_reply(session, None, "completed", turn.text, turn.said_at)


def _record_memory(
    memory_of: dict[str, int], turn_id: str, outcome: MemoryAnnouncement | None
) -> None:
    if outcome is not None and outcome.memory_id is not None:
        memory_of[turn_id] = outcome.memory_id


def _is_answer(outcome: MemoryAnnouncement) -> bool:
    return any(reason.name == "answer" for reason in outcome.reasons)
