"""A companion's reference library, for operators."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import MAX_ID, RelationshipServices, parse_number, read_bytes
from foremind.api.operations import TEXT, Operation
from foremind.api.responses import DoneResponse, json_response
from foremind.auth.principal import Principal
from foremind.domain.companion import Document
from foremind.domain.errors import InvalidMessage
from foremind.storage.companion_store import DocumentStore

_MAX_DOCUMENT_BYTES = 20_000_000
_MAX_TITLE_CHARS = 200


class Documents(msgspec.Struct):
    """A companion's reference library."""

    documents: list[Document]


class DocumentEndpoints:
    """Operations below `/v1/companions/{slug}/documents`."""

    def __init__(self, services: RelationshipServices, store: DocumentStore) -> None:
        self._services = services
        self._store = store

    @Operation("GET", "/v1/companions/{slug}/documents", Documents, scope="admin")
    async def list_documents(self, request: Request, _: Principal) -> Response:
        """List documents.

        Returns the documents of the companion's reference library. `embedded` of a document's
        `chunks` are available to vector search already.
        """
        documents = await self._store.documents_of(await self._companion_id(request))
        return json_response({"documents": documents})

    @Operation(
        "POST",
        "/v1/companions/{slug}/documents",
        Document,
        status=202,
        body=bytes,
        query={"title": TEXT | {"description": "The title, 1 to 200 characters."}},
        required=frozenset({"title"}),
        scope="admin",
    )
    async def add(self, request: Request, _: Principal) -> Response:
        """Add a document.

        Adds a document of at most 20 MB to the companion's reference library. The body is the
        document itself, and `content-type` its media type. Returns before the document has been
        embedded, from when on it is searched.
        """
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

    @Operation("DELETE", "/v1/companions/{slug}/documents/{document}", DoneResponse, scope="admin")
    async def remove(self, request: Request, _: Principal) -> Response:
        """Remove a document.

        Removes a document from the companion's reference library.
        """
        companion_id = await self._companion_id(request)
        id_ = parse_number(request.path_params["document"], "document", 1, MAX_ID)
        await self._store.remove(companion_id, id_)
        return json_response({"status": "ok"})

    async def _companion_id(self, request: Request) -> int:
        return (await self._services.stores.companions.find(request.path_params["slug"])).id
