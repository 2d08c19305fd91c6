"""Tells a dialogue to a companion through the real store, as if it happened."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foremind.app import Core
from foremind.companions import CompanionFile, CompanionSettings
from foremind.embedding.queue import Priority
from foremind.evaluation.dialogues import Dialogue, SaidTurn

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Told:
    """A dialogue that was told: the memory of each turn that was kept, by the turn's id."""

    dialogue: Dialogue
    relationship_id: int
    memory_of: dict[str, int]

    @property
    def filler(self) -> list[SaidTurn]:
        """The turns that were not worth keeping."""
        return [turn for turn in self.dialogue.turns if turn.id not in self.memory_of]


class Vectors:
    """The vectors of texts that are needed again and again; as many as the dialogues hold."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[str, Vector] = {}

    async def of(self, text: str) -> Vector:
        """Return the vector of a query, made once."""
        if text not in self._known:
            self._known[text] = await self._core.embedder.embed_query(text, Priority.ENTER)
        return self._known[text]


async def tell(
    core: Core,
    dialogue: Dialogue,
    label: str,
    settings: CompanionSettings,
    vectors: Vectors,
    advance: Callable[[int], None],
) -> Told:
    """Store a dialogue with a companion of its own, named by `label`, with these settings."""
    slug = f"eval-{dialogue.id}-{label}"
    companion = await core.companions.put(
        CompanionFile(slug, dialogue.companion_name, "Evaluated.", settings=settings)
    )
    memory_of: dict[str, int] = {}
    told_in: str | None = None
    for turn in dialogue.turns:
        if turn.session != told_in:
            told_in = turn.session
            session = await core.turns.open_session(
                slug, dialogue.user_name, companion.id, turn.said_at
            )
        if turn.speaker == "user":
            stored = await core.turns.commit_message(session, turn.id, turn.text, turn.said_at)
            turn_id: int | None = stored.id
        else:
            turn_id = await core.turns.commit_reply(
                session, None, "completed", turn.text, turn.said_at
            )
        if turn_id is None:
            continue
        core.rememberer.hand_over(turn_id, await vectors.of(turn.text))
        verdict = await core.rememberer.remember(session.relationship_id, turn_id)
        if verdict is not None and verdict.memory_id is not None:
            memory_of[turn.id] = verdict.memory_id
        advance(1)
    return Told(dialogue, session.relationship_id, memory_of)
