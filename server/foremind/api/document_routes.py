"""A companion's reference library, for operators."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import MAX_ID, RelationshipServices, parse_number, read_bytes
from foremind.api.responses import json_response
from foremind.auth.authority import require_scope
from foremind.domain.errors import InvalidMessage
from foremind.storage.companion_store import DocumentStore

_MAX_DOCUMENT_BYTES = 20_000_000
_MAX_TITLE_CHARS = 200


class _DocumentEndpoints:
    def __init__(self, services: RelationshipServices, store: DocumentStore) -> None:
        self._services = services
        self._store = store

    async def list_documents(self, request: Request) -> Response:
        documents = await self._store.documents_of(await self._companion_id(request))
        return json_response({"documents": documents})

    async def add(self, request: Request) -> Response:
        companion_id = await self._companion_id(request)
        title = request.query_params.get("title", "").strip()
        if not title or len(title) > _MAX_TITLE_CHARS:
            raise InvalidMessage(
                f"title: expected text of 1 to {_MAX_TITLE_CHARS} characters", param="title"
            )
        media_type = request.headers.get("content-type", "")
        body = await read_bytes(request, _MAX_DOCUMENT_BYTES)
        id_ = str(await self._services.context.library.add(companion_id, title, media_type, body))
        documents = await self._store.documents_of(companion_id)
        return json_response(next(document for document in documents if document.id == id_), 202)

    async def remove(self, request: Request) -> Response:
        companion_id = await self._companion_id(request)
        id_ = parse_number(request.path_params["document"], "document", 1, MAX_ID)
        await self._store.remove(companion_id, id_)
        return json_response({"status": "ok"})

    async def _companion_id(self, request: Request) -> int:
        require_scope(await self._services.authenticator.authenticate(request), "admin")
        return (await self._services.stores.companions.find(request.path_params["slug"])).id


def document_routes(services: RelationshipServices, store: DocumentStore) -> list[BaseRoute]:
    """Return the routes below `/v1/companions/{slug}/documents`."""
    endpoints = _DocumentEndpoints(services, store)
    path = "/v1/companions/{slug}/documents"
    return [
        Route(path, endpoints.list_documents),
        Route(path, endpoints.add, methods=["POST"]),
        Route(path + "/{document}", endpoints.remove, methods=["DELETE"]),
    ]
