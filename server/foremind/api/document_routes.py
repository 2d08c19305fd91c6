"""The reference library of a companion, for its owner."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import RelationshipServices, bytes_of, number
from foremind.api.responses import json_response
from foremind.auth.authority import require
from foremind.domain.errors import InvalidMessage
from foremind.storage.document_store import DocumentStore

_MOST_DOCUMENT = 20_000_000  # bytes
_MOST_TITLE = 200


def document_routes(services: RelationshipServices, store: DocumentStore) -> list[BaseRoute]:
    """Return the routes below `/v1/companions/{slug}/documents`."""

    async def companion(request: Request) -> int:
        require(await services.entrance.caller(request), "admin")
        return (await services.companions.find(request.path_params["slug"])).id

    async def listed(request: Request) -> Response:
        return json_response({"documents": await store.of_companion(await companion(request))})

    async def upload(request: Request) -> Response:
        companion_id = await companion(request)
        title = request.query_params.get("title", "").strip()
        if not title or len(title) > _MOST_TITLE:
            raise InvalidMessage(
                f"title: expected text of at most {_MOST_TITLE} characters", param="title"
            )
        media_type = request.headers.get("content-type", "")
        body = await bytes_of(request, _MOST_DOCUMENT)
        id_ = await services.library.add(companion_id, title, media_type, body)
        document = next(
            each for each in await store.of_companion(companion_id) if each.id == str(id_)
        )
        return json_response(document, 202)

    async def remove(request: Request) -> Response:
        companion_id = await companion(request)
        id_ = number(request.path_params["document"], "document", 1, 2**62)
        await store.remove(companion_id, id_)
        return json_response({"status": "ok"})

    path = "/v1/companions/{slug}/documents"
    return [
        Route(path, listed),
        Route(path, upload, methods=["POST"]),
        Route(path + "/{document}", remove, methods=["DELETE"]),
    ]
