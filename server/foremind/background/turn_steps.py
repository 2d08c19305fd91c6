"""The steps that take turns one by one: ingest, and rating by a language model."""

from foremind.background.step_definitions import StepName
from foremind.memory.importance_rating import ImportanceRater
from foremind.memory.ingest import MemoryIngester


class TurnSteps:
    """Runs such steps; each records in its own transaction that its turn waits no longer."""

    def __init__(self, ingester: MemoryIngester, rater: ImportanceRater) -> None:
        self._ingester = ingester
        self._rater = rater

    async def run(self, step: StepName, relationship_id: int, turn_id: int) -> bool:
        """Run a step for a turn.

        Returns:
            False if there was nothing to do, because the turn was erased, for example.

        Raises:
            ModelServerError, StorageUnavailable, Overloaded: try again later.
        """
        if step == "ingest":
            return await self._ingester.ingest(relationship_id, turn_id) is not None
        return await self._rater.rate(relationship_id, turn_id)
