"""Turns and memories: listing, correcting, erasing."""

from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import (
    MAX_ID,
    RelationshipServices,
    ResolvedRelationship,
    page_body,
    page_parameters,
    parse_number,
    read_json,
    resolve_relationship,
)
from foremind.api.operations import ID, PAGE, TEXT, Operation
from foremind.api.responses import DoneResponse, json_response
from foremind.auth.principal import Principal
from foremind.domain.errors import InvalidMessage
from foremind.domain.memory import StoredMemory
from foremind.domain.relationship import TranscriptEntry
from foremind.memory.erasure.eraser import ErasureReceipt, ErasureScope
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


_DRY_RUN = {
    "type": "boolean",
    "default": False,
    "description": "Only count what would be erased.",
}


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new content of a memory."""

    content: str


class MemoryPage(msgspec.Struct):
    """A page of memories in ascending order of id.

    `next_after` is the value of `after` for the next page, null on the last page.
    """

    memories: list[StoredMemory]
    next_after: str | None


class TurnPage(msgspec.Struct):
    """A page of turns in ascending order of id.

    `next_after` is the value of `after` for the next page, null on the last page.
    """

    turns: list[TranscriptEntry]
    next_after: str | None


class MemoryEndpoints:
    """Operations on turns and memories."""

    def __init__(self, services: RelationshipServices) -> None:
        self._services = services

    @Operation(
        "GET",
        "/v1/relationships/{id}/turns",
        TurnPage,
        query=PAGE
        | {
            "session": TEXT
            | {"description": "The id of a session (UUID). Default: turns of all sessions."}
        },
    )
    async def list_turns(self, request: Request, principal: Principal) -> Response:
        """List turns.

        Returns a page of the transcript in ascending order of id. `memory` is the id of the memory
        that a turn is part of; it is null if the turn was not kept as a memory.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        after, limit = page_parameters(request)
        page = await self._services.stores.relationships.turns(
            resolved.relationship.id, after, limit, _session_id(request)
        )
        return json_response(page_body("turns", page, limit))

    @Operation("GET", "/v1/relationships/{id}/memories", MemoryPage, query=PAGE)
    async def list_memories(self, request: Request, principal: Principal) -> Response:
        """List memories.

        Returns a page of memories in ascending order of id, each with its significance and the
        reasons for it.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        after, limit = page_parameters(request)
        relationships = self._services.stores.relationships
        page = await relationships.memories(resolved.relationship.id, after, limit)
        return json_response(page_body("memories", page, limit))

    @Operation(
        "PATCH",
        "/v1/relationships/{id}/memories/{memory}",
        DoneResponse,
        body=Correction,
        scope="memory:write",
    )
    async def correct(self, request: Request, principal: Principal) -> Response:
        """Correct a memory.

        Replaces the content of the memory and of the turns that it was made from. It is embedded
        and indexed again at once.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        memory_id = parse_number(request.path_params["memory"], "memory", 1, MAX_ID)
        content = (await read_json(request, Correction)).content
        await correct_memory(self._services, resolved, memory_id, content)
        return json_response({"status": "ok"})

    @Operation(
        "DELETE",
        "/v1/relationships/{id}/memories",
        ErasureReceipt,
        query={
            "session": TEXT | {"description": "Erase what was said in the session with this id."},
            "about": TEXT
            | {
                "description": "Erase every turn and record that contains all of these words. Stop "
                "words do not count, unless they are capitalised or in quotation marks. Without "
                "another word the request is refused."
            },
            "turn": ID | {"description": "Erase the turn with this id."},
            "dry_run": _DRY_RUN,
        },
        scope="memory:write",
    )
    async def erase(self, request: Request, principal: Principal) -> Response:
        """Erase memories.

        Permanently erases what at most one of `session`, `turn` and `about` selects; without any,
        the whole content of the relationship, including its settings. The companion's replies that
        repeat it, and all records derived from it, are erased too, then rebuilt from the remaining
        sources; a reply in progress is stopped and not kept. Large erasures run in several
        transactions, and the receipt follows the last: without a receipt, repeat the request to
        erase the remainder. With `dry_run` nothing is erased, and the receipt counts what would be.
        """
        return await self._erase(request, principal)

    @Operation(
        "DELETE",
        "/v1/relationships/{id}/memories/{memory}",
        ErasureReceipt,
        query={"dry_run": _DRY_RUN},
        scope="memory:write",
    )
    async def erase_one(self, request: Request, principal: Principal) -> Response:
        """Erase a memory.

        Permanently erases the memory with its turns, the companion's replies that repeat it, and
        all records derived from it, which are rebuilt from the remaining sources. With `dry_run`
        nothing is erased, and the receipt counts what would be.
        """
        return await self._erase(request, principal)

    async def _erase(self, request: Request, principal: Principal) -> Response:
        resolved = await resolve_relationship(self._services, request, principal)
        scope = _erasure_scope(self._services, resolved, request)
        dry_run = _dry_run(request)
        return json_response(await erase_memories(self._services, resolved, scope, dry_run=dry_run))


def _dry_run(request: Request) -> bool:
    """Return whether a request only asks what it would erase.

    Raises:
        InvalidMessage: it is not said in JSON's words.
    """
    value = request.query_params.get("dry_run", "false")
    if value not in ("true", "false"):
        raise InvalidMessage("dry_run: expected true or false", param="dry_run")
    return value == "true"


def _erasure_scope(
    services: RelationshipServices, resolved: ResolvedRelationship, request: Request
) -> ErasureScope:
    """Return what a request erases: a memory, a session, a turn, what mentions words, or all.

    Raises:
        InvalidMessage: a parameter is invalid, or there is more than one.
    """
    memory = request.path_params.get("memory")
    about, turn = (request.query_params.get(name) for name in ("about", "turn"))
    session = _asked_session(request)
    if sum(value is not None for value in (memory, session, about, turn)) > 1:
        raise InvalidMessage("about: expected only one of session, about and turn", param="about")
    return ErasureScope(
        memories=() if memory is None else (parse_number(memory, "memory", 1, MAX_ID),),
        turns=() if turn is None else (parse_number(turn, "turn", 1, MAX_ID),),
        session=session,
        about=None if about is None else mention_of(services, resolved, about),
    )


def _session_id(request: Request) -> UUID | None:
    """Return the session that is asked for, None for all.

    Raises:
        InvalidMessage: it is not a session id.
    """
    session = _asked_session(request)
    try:
        return None if session is None else UUID(session)
    except ValueError:
        raise InvalidMessage("session: expected the id of a session", param="session") from None


def _asked_session(request: Request) -> str | None:
    """Return the stored session that is asked for: a client knows it by the id of its window."""
    session = request.query_params.get("session")
    return None if session is None else session.partition(".")[0]
