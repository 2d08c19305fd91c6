"""What a session has read and prepared of its conversation, and drops when that changes."""

from foremind.domain.policy import Policy
from foremind.gateway.conversation import LiveConversation
from foremind.gateway.reply_generation import ReplyGeneration
from foremind.gateway.turns.answered_messages import AnsweredMessages


class SessionCaches:
    """History, answered messages and speculative work of one session."""

    def __init__(self, conversation: LiveConversation, replies: ReplyGeneration) -> None:
        self._conversation = conversation
        self._replies = replies
        self.answered = AnsweredMessages()

    def drop_history(self, erasures: int | None = None, *, went_back: bool = False) -> None:
        """Drop the history, which is loaded again with the next message.

        Args:
            erasures: the current number of erasures, if some happened. If it is higher than known,
                a reply in progress is stopped: it may contain erased text, and is neither stored
                nor sent any further.
            went_back: a lower number counts, too: the database lost the last ones.
        """
        self._conversation.history.drop()
        self.answered.clear()  # contains hashes of texts that may be erased
        self.drop_speculation()
        known = self._conversation.erasures
        if erasures is not None and (erasures > known or (went_back and erasures < known)):
            self._conversation.erasures = erasures
            self._replies.stop()

    def drop_speculation(self) -> None:
        """Drop all speculative work: it may contain erased text."""
        self._replies.speculation.reset()
        self._replies.next_prompt.drop()

    async def roll_over_if_idle(self, policy: Policy) -> None:
        """Begin the next session if this one was idle for longer than the policy allows.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        if await self._conversation.roll_over_if_idle(policy):
            self.drop_speculation()
