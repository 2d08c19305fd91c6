"""What users change of their memories, by whichever door: correcting and erasing."""

from foremind.api.dependencies import RelationshipServices, ResolvedRelationship
from foremind.domain.errors import InvalidMessage
from foremind.memory.erase import ErasureReceipt, ErasureScope
from foremind.text.mentions import Mention, parse_mention


def text_of(services: RelationshipServices, text: str, name: str) -> str:
    """Return a text without surrounding white space, having checked its length.

    Raises:
        InvalidMessage: it is blank or too long; `name` is that of its field.
    """
    max_chars = services.runtime.settings.max_text_chars
    if not text.strip() or len(text) > max_chars:
        raise InvalidMessage(f"{name}: expected text of 1 to {max_chars} characters", param=name)
    return text.strip()


async def correct_memory(
    services: RelationshipServices, resolved: ResolvedRelationship, memory_id: int, content: str
) -> None:
    """Replace the content of a memory, in the name of who asks for it.

    Raises:
        InvalidMessage: the content is blank or too long.
        NotFound: the relationship has no such memory.
        StorageFull: it is longer, and the user has stored as much as one may.
    """
    await services.editing.corrector.correct(
        resolved.relationship.id,
        resolved.names,
        memory_id,
        text_of(services, content, "content"),
        actor=resolved.principal.user_id,
        read_in_exchange=resolved.policy.storage.read_in_exchange,
    )
    services.background_worker.wake(resolved.relationship.id)


def mention_of(
    services: RelationshipServices, resolved: ResolvedRelationship, about: str
) -> Mention:
    """Return what the words of a request are about.

    Raises:
        InvalidMessage: they are blank or too long, or no word tells anything apart.
    """
    language = resolved.relationship.language
    mention = parse_mention(text_of(services, about, "about"), language)
    if mention is None:
        raise InvalidMessage(
            "about: expected a word that tells something apart, or one in quotation marks, which "
            'then stands for itself: "Will"',
            param="about",
        )
    return mention


async def erase_memories(
    services: RelationshipServices,
    resolved: ResolvedRelationship,
    scope: ErasureScope,
    *,
    dry_run: bool,
) -> ErasureReceipt:
    """Erase what a scope names, in the name of who asks for it; with `dry_run` only count it.

    Raises:
        InvalidMessage: the session is blank.
        NotFound: there is nothing like it.
    """
    if scope.session is not None and not scope.session.strip():  # must never mean "everything"
        raise InvalidMessage("session: expected non-empty text", param="session")
    receipt = await services.editing.eraser.erase(
        resolved.relationship.id,
        resolved.names,
        scope,
        actor=resolved.principal.user_id,
        read_in_exchange=resolved.policy.storage.read_in_exchange,
        dry_run=dry_run,
    )
    if not dry_run:
        services.background_worker.wake(resolved.relationship.id)
    return receipt
