"""The turns of a session that its prompts can hold."""

from collections.abc import Awaitable, Callable, Sequence

from foremind.domain.turn import Speaker, Turn
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.offload import run_or_offload


class ChatHistory:
    """The newest turns of a session, oldest first; loaded from the database on demand.

    Args:
        turns: the turns so far; None if they have not been loaded.
        newest_fitting: returns the newest of some turns that fit into a prompt.
        earlier: what was said before all that is stored; it is not stored.
    """

    def __init__(
        self,
        turns: list[PastTurn] | None,
        newest_fitting: Callable[[list[PastTurn]], list[PastTurn]],
        earlier: Sequence[PastTurn] = (),
    ) -> None:
        self._earlier = earlier
        self._newest_fitting = newest_fitting
        self._turns = newest_fitting(turns or [])
        self._changes = 0  # stored changes that `_turns` does not include
        #: Whether the history is loaded.
        self.known = turns is not None
        #: The id of the newest stored turn that it includes or left out for lack of space.
        self.newest_id = max((turn.id or 0 for turn in turns or ()), default=0)

    @property
    def turns(self) -> Sequence[PastTurn]:
        """The loaded turns."""
        return self._turns

    def without(self, message_id: str | None) -> list[PastTurn]:
        """Return the loaded turns except a user message."""
        return [turn for turn in self._turns if message_id is None or turn.message_id != message_id]

    async def read(
        self, fetch: Callable[[], Awaitable[Sequence[Turn]]], message_id: str | None = None
    ) -> None:
        """Load the history unless it is loaded; repeat if it changes meanwhile.

        Args:
            fetch: queries the database.
            message_id: the message in progress, which is left out: it may already be stored.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        while not self.known:
            changes = self._changes
            stored = [
                PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
                for turn in await fetch()
                if message_id is None or turn.message_id != message_id
            ]
            if changes == self._changes:
                turns = self._newest_fitting([*self._earlier, *stored])
                await split_sentences(*turns)
                if changes == self._changes:
                    self._turns, self.known = turns, True
                    self.newest_id = max((turn.id or 0 for turn in stored), default=0)

    def drop(self) -> None:
        """Unload the history; the next `read` fetches it again."""
        self._turns.clear()
        self.known = False
        self._changes += 1

    def add(self, turn: PastTurn) -> None:
        """Append a turn; one that is already present moves to the end."""
        _ = turn.says  # computed and cached now, when no reply waits for it
        if self.known:  # otherwise it is loaded with the next message
            self.newest_id = max(self.newest_id, turn.id or 0)
            others = [other for other in self._turns if turn.id is None or other.id != turn.id]
            self._turns = self._newest_fitting([*others, turn])

    def add_remote(self, turn: PastTurn) -> bool:
        """Append a turn from another connection; return False if it was already present."""
        if not self.known:
            self._changes += 1
            return True
        if any(other.id == turn.id for other in self._turns):
            return False
        self.add(turn)
        return True

    def reaches(self, turn_id: int | None) -> bool:
        """Return whether every turn up to a stored one is included, or will be once loaded."""
        return not self.known or turn_id is None or turn_id <= self.newest_id

    def lacks(self, message_id: str, speaker: Speaker) -> bool:
        """Return whether a stored turn is missing: the user's message or the reply to it."""
        if not self.known:
            return False
        remaining = iter(self._turns)
        if not any(turn.message_id == message_id for turn in remaining):
            return True
        return speaker == "companion" and all(turn.speaker == "user" for turn in remaining)


async def split_sentences(*turns: PastTurn) -> None:
    """Split turns into sentences before a prompt needs them; long ones in a thread."""
    chars = sum(len(turn.content) for turn in turns)
    await run_or_offload(chars, lambda: [turn.says for turn in turns])
