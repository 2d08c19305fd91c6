"""What users change of their memories, by whichever door: correcting and erasing."""

from foremind.api.dependencies import RelationshipServices, ResolvedRelationship
from foremind.domain.errors import InvalidMessage
from foremind.memory.erasure_request import ErasureReceipt, ErasureScope


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


async def erase_memories(
    services: RelationshipServices, resolved: ResolvedRelationship, scope: ErasureScope
) -> ErasureReceipt:
    """Erase what a scope names, in the name of who asks for it.

    Raises:
        InvalidMessage: the words that it is about are blank.
        NotFound: there is nothing like it.
    """
    for name, value in (("session", scope.session), ("about", scope.about)):
        if value is not None and not value.strip():  # must never mean "everything"
            raise InvalidMessage(f"{name}: expected non-empty text", param=name)
    receipt = await services.editing.eraser.erase(
        resolved.relationship.id,
        resolved.names,
        scope,
        actor=resolved.principal.user_id,
        read_in_exchange=resolved.policy.storage.read_in_exchange,
    )
    services.background_worker.wake(resolved.relationship.id)
    return receipt
