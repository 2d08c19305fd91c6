"""A user's memories: to be seen, corrected, forgotten."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.errors import InvalidMessage
from foremind.http.answers import answered, json_response
from foremind.http.callers import RelationshipServices, body_of, find, number, page_of, paged
from foremind.memory.forget import Scope

_PAGE = 100
_MOST = 1000


def memory_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes below `/v1/relationships/{id}/memories`."""

    async def memories(request: Request) -> Response:
        found = await find(services, request)
        after, limit = page_of(request, _PAGE, _MOST)
        page = await services.relationships.memories(found.relationship.id, after, limit)
        return json_response(paged("memories", page, limit))

    async def correct(request: Request) -> Response:
        found = await find(services, request)
        body = await body_of(request, dict[str, str])
        content = body.get("content", "").strip()
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
        receipt = await services.forgetter.forget(
            found.relationship.id,
            found.names,
            Scope(
                memory=None if one is None else number(one, "memory", 1, 2**62),
                session=request.query_params.get("session"),
                about=request.query_params.get("about"),
            ),
            actor=found.caller.user_id,
            read_in_exchange=found.policy.storage.read_in_exchange,
        )
        services.curation.look()
        return json_response(receipt)

    path = "/v1/relationships/{id}/memories"
    return [
        Route(path, answered(memories)),
        Route(path, answered(forget), methods=["DELETE"]),
        Route(path + "/{memory}", answered(correct), methods=["PATCH"]),
        Route(path + "/{memory}", answered(forget), methods=["DELETE"]),
    ]
