"""What was said so far in a session, as far as its prompts hold it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from foremind.domain.turn import Speaker, Turn
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.offload import aside


class ChatHistory:
    """The newest turns of a session, oldest first; read from the database when they are needed.

    Args:
        turns: what was said so far; None, it is still to be read.
        held: returns those of some turns that a prompt may hold.
    """

    def __init__(
        self,
        turns: list[PastTurn] | None,
        held: Callable[[list[PastTurn]], list[PastTurn]],
    ) -> None:
        self._held = held
        self._turns = held(turns or [])
        self._changes = 0  # of what is stored, as far as `_turns` does not hold them
        #: Whether this is all that was said; else it is to be read.
        self.known = turns is not None

    @property
    def turns(self) -> Sequence[PastTurn]:
        """What was said, as far as it is known."""
        return self._turns

    def but_for(self, message_id: str | None) -> list[PastTurn]:
        """Return what was said, without a message."""
        return [turn for turn in self._turns if message_id is None or turn.message_id != message_id]

    async def read(
        self, stored: Callable[[], Awaitable[Sequence[Turn]]], message_id: str | None = None
    ) -> None:
        """Read what was said, unless it is known; anew, where it changes meanwhile.

        Args:
            stored: asks the database, each time anew.
            message_id: of the message under way, which may be stored by now: no past of its own.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        while not self.known:
            changes = self._changes
            told = [
                PastTurn(turn.speaker, turn.content, turn.id, turn.message_id)
                for turn in await stored()
                if message_id is None or turn.message_id != message_id
            ]
            if changes == self._changes:
                held = self._held(told)
                chars = sum(len(each.content) for each in held)
                await aside(chars, partial(_read_sentences, held))
                if changes == self._changes:
                    self._turns, self.known = held, True

    def drop(self) -> None:
        """Hold nothing; what is stored is to be read."""
        self._turns.clear()
        self.known = False
        self._changes += 1

    def add(self, turn: PastTurn) -> None:
        """Take in a turn; one that was said before and not answered moves to the end."""
        _ = turn.says  # read while nobody waits
        if self.known:  # else it is read with the next message
            others = [each for each in self._turns if turn.id is None or each.id != turn.id]
            self._turns = self._held([*others, turn])

    def hear(self, turn: PastTurn) -> bool:
        """Take in a turn that came about elsewhere; False where it was known."""
        if not self.known:
            self._changes += 1
            return True
        if any(each.id == turn.id for each in self._turns):
            return False
        self.add(turn)
        return True

    def lacks(self, message_id: str, speaker: Speaker) -> bool:
        """Tell whether a message, or the reply to it where that is what was stored, is missing."""
        if not self.known:
            return False
        past = iter(self._turns)
        if not any(turn.message_id == message_id for turn in past):
            return True
        return speaker == "companion" and all(turn.speaker == "user" for turn in past)


def without_summarised(turns: Sequence[PastTurn], upto: int) -> list[PastTurn]:
    """Return the turns that no summary holds: those after one."""
    return [turn for turn in turns if turn.id is None or turn.id > upto]


def _read_sentences(turns: Sequence[PastTurn]) -> None:
    for turn in turns:
        _ = turn.says
