"""The language of a session's prompts, and of what rules write into records."""

from uuid import UUID

from foremind.storage.turn_store import TurnStore
from foremind.text.languages.prompt_words import language_of_messages, with_words

_MAX_MESSAGES = 10  # that are read for their language


async def prompt_language(
    turns: TurnStore, stated: str | None, relationship_id: int, session_id: UUID | None
) -> str:
    """Return the stated language, or that of the player's last messages before the session.

    It is English where Foremind has no words of its own in that language.

    Those of the session do not count: its prompts keep one language, however often its client
    connects, so that a model server can reuse what it has read.

    Args:
        stated: the language, perhaps with its region.
        session_id: None if there is none yet.

    Raises:
        StorageUnavailable: the database did not answer.
    """
    if stated is not None:
        return with_words(stated.partition("-")[0])
    texts = await turns.messages_before(relationship_id, session_id, _MAX_MESSAGES)
    return with_words(language_of_messages(texts))
