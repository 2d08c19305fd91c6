"""The steps that take turns: ingest, and rating by a language model."""

from collections.abc import Collection, Sequence

from foremind.background.step_definitions import StepName
from foremind.memory.importance_rating import ImportanceRater
from foremind.memory.ingest import MemoryIngester


class TurnSteps:
    """Runs such steps; each records in its own transaction that its turns wait no longer."""

    def __init__(self, ingester: MemoryIngester, rater: ImportanceRater) -> None:
        self._ingester = ingester
        self._rater = rater

    async def run(
        self, step: StepName, relationship_id: int, turn_ids: Sequence[int]
    ) -> Collection[int]:
        """Run a step for turns in order: ingest for all at once, which is all or nothing.

        Returns:
            Those for which there was something to do; an erased turn, for example, is not.

        Raises:
            ModelServerError, StorageUnavailable, Overloaded: try again later.
        """
        if step == "ingest":
            return await self._ingester.ingest_turns(relationship_id, turn_ids)
        return [turn for turn in turn_ids if await self._rater.rate(relationship_id, turn)]
