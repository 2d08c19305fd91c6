"""What was said and what is remembered of it: to be seen, corrected, forgotten."""

from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import RelationshipServices, body_of, find, number, page_of, paged
from foremind.api.responses import json_response
from foremind.domain.errors import InvalidMessage
from foremind.memory.erase import ErasureScope

_PAGE = 100
_MOST = 1000


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a memory shall say."""

    content: str


def memory_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes of turns, and those below `/v1/relationships/{id}/memories`."""

    async def turns(request: Request) -> Response:
        found = await find(services, request)
        after, limit = page_of(request, _PAGE, _MOST)
        session = _session_of(request)
        page = await services.relationships.turns(found.relationship.id, after, limit, session)
        return json_response(paged("turns", page, limit))

    async def memories(request: Request) -> Response:
        found = await find(services, request)
        after, limit = page_of(request, _PAGE, _MOST)
        page = await services.relationships.memories(found.relationship.id, after, limit)
        return json_response(paged("memories", page, limit))

    async def correct(request: Request) -> Response:
        found = await find(services, request)
        content = (await body_of(request, Correction)).content.strip()
        most = services.settings.max_text_chars
        if not content or len(content) > most:
            raise InvalidMessage(
                f"content: expected text of at most {most} characters", param="content"
            )
        await services.corrector.correct(
            found.relationship.id,
            found.names,
            number(request.path_params["memory"], "memory", 1, 2**62),
            content,
            actor=found.caller.user_id,
            in_exchange=found.policy.storage.read_in_exchange,
        )
        services.curation.look()
        return json_response({"status": "ok"})

    async def forget(request: Request) -> Response:
        found = await find(services, request)
        one = request.path_params.get("memory")
        session, about, turn = (
            request.query_params.get(name) for name in ("session", "about", "turn")
        )
        for name, value in (("session", session), ("about", about)):
            if value is not None and not value.strip():  # it must not be taken for everything
                raise InvalidMessage(f"{name}: expected what is to be forgotten", param=name)
        if sum(each is not None for each in (one, session, about, turn)) > 1:
            raise InvalidMessage("about: expected one of session, about and turn", param="about")
        receipt = await services.forgetter.forget(
            found.relationship.id,
            found.names,
            ErasureScope(
                memories=() if one is None else (number(one, "memory", 1, 2**62),),
                turns=() if turn is None else (number(turn, "turn", 1, 2**62),),
                session=session,
                about=about,
            ),
            actor=found.caller.user_id,
            read_in_exchange=found.policy.storage.read_in_exchange,
        )
        services.curation.look()
        return json_response(receipt)

    path = "/v1/relationships/{id}/memories"
    return [
        Route("/v1/relationships/{id}/turns", turns),
        Route(path, memories),
        Route(path, forget, methods=["DELETE"]),
        Route(path + "/{memory}", correct, methods=["PATCH"]),
        Route(path + "/{memory}", forget, methods=["DELETE"]),
    ]


def _session_of(request: Request) -> UUID | None:
    """Read which session is meant, None for all.

    Raises:
        InvalidMessage: no session can have such an id.
    """
    named = request.query_params.get("session")
    try:
        return None if named is None else UUID(named)
    except ValueError:
        raise InvalidMessage("session: expected the id of a session", param="session") from None
