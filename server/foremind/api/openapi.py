"""The OpenAPI 3.1 document of the HTTP API, generated from its operations. Pure."""

import inspect
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from foremind import __version__
from foremind.api.admin_routes import AdminEndpoints, CardEndpoints
from foremind.api.chat_completions import ChatCompletionEndpoints
from foremind.api.document_routes import DocumentEndpoints
from foremind.api.event_routes import EventEndpoints
from foremind.api.mcp_routes import McpEndpoint
from foremind.api.memory_routes import MemoryEndpoints
from foremind.api.operations import ID, TEXT, Operation, operations_of
from foremind.api.prompt_routes import PromptEndpoints
from foremind.api.record_routes import RecordEndpoints
from foremind.api.relationship_routes import RelationshipEndpoints
from foremind.api.responses import ErrorResponse
from foremind.api.server_routes import ServerEndpoints
from foremind.api.transfer_routes import TransferEndpoints
from foremind.api.turn_routes import TurnEndpoints
from foremind.api.user_routes import UserEndpoints
from foremind.api.world_routes import WorldEndpoints
from foremind.auth.principal import MAX_USER_CHARS

OPERATIONS = tuple(
    operation
    for endpoints in (
        ServerEndpoints, ChatCompletionEndpoints, TurnEndpoints, PromptEndpoints, McpEndpoint,
        UserEndpoints, TransferEndpoints, RelationshipEndpoints, EventEndpoints, MemoryEndpoints,
        RecordEndpoints, DocumentEndpoints, AdminEndpoints, CardEndpoints, WorldEndpoints,
    )
    for _, operation in operations_of(endpoints)
)  # fmt: skip
_OVERVIEW = """\
**Authentication.** Requests carry a signed token (JWT) as a bearer token. In open mode, which is \
for development and reachable from loopback only, there are no tokens, and the query parameter \
`user` names the user. With a token of scope `admin`, `user` is the user on whose behalf the \
request is made; the scope `admin` includes all others.

**Strictness.** Query parameters and body fields that an operation does not describe are refused \
with 400, and so are repeated parameters, and bodies of operations that take none; only chat \
completions ignore what they do not know, as their clients expect, and a card may have fields of \
any name. Request bodies are JSON with `content-type: application/json`, except for documents and \
files of character cards.

**Web pages.** Pages may use the API if they come from the server itself, or from an origin in \
`FOREMIND_ALLOWED_ORIGINS`. Requests from other pages are refused with 403.

**Ids and pages.** Ids are strings, to be treated as opaque. A list with `after` and `limit` is \
read page by page: pass `next_after` as `after` until it is null.

**Errors.** Every error has the body `ErrorResponse`, also for unknown paths (404) and for methods \
that a path does not have (405, with `Allow`). If `retryable` is true, retry with exponential \
backoff, or after `Retry-After` seconds where that is given.
"""
_ERRORS = {
    400: "A parameter or field is unknown, missing or invalid; `param` names it.",
    401: "The token is missing, invalid, expired or revoked. In open mode: no user is named, or "
    "`Host` is not a loopback name or address.",
    403: "The token does not allow the operation, or the request comes from a page of another "
    "origin.",
    404: "The resource does not exist, or belongs to another user.",
    409: "The request conflicts with the current state of the resource.",
    413: "The body is too large, or storing it would exceed a limit.",
    415: "The media type of the body is not supported.",
    429: "Too many requests; `Retry-After` gives the seconds to wait.",
    500: "Internal server error.",
    503: "Temporarily unavailable, for example because the database does not answer; retry later.",
}
_PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "id": ID | {"description": "The id of the relationship."},
    "turn": ID | {"description": "The id of the turn."},
    "memory": ID | {"description": "The id of the memory."},
    "record": ID | {"description": "The id of the record."},
    "document": ID | {"description": "The id of the document."},
    "slug": TEXT | {"description": "The slug of the companion."},
    "session": TEXT | {"description": "The id of the session (UUID)."},
    "world": TEXT | {"description": "The name of the world."},
    "scene": TEXT | {"description": "The name of the scene."},
    "save": TEXT | {"description": "The name of the saved moment."},
    "event": TEXT | {"description": "The id of the event, as its host chose it."},
}
_USER_ID: dict[str, Any] = TEXT | {
    "minLength": 1, "maxLength": MAX_USER_CHARS,
    "description": "The id of the user, as in the claim `sub` of its tokens.",
}  # fmt: skip


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document; it can be encoded as JSON."""
    shapes = [
        shape
        for operation in OPERATIONS
        for shape in (operation.response, operation.body)
        if shape not in (None, bytes)
    ]
    schemas, components = msgspec.json.schema_components(
        [*shapes, ErrorResponse],
        schema_hook=lambda _: {},  # any JSON: the values of settings
        ref_template="#/components/schemas/{name}",
    )
    error_schema = schemas[-1]
    schema_of = {repr(shape): schema for shape, schema in zip(shapes, schemas, strict=False)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        described = _operation_object(operation, schema_of, error_schema)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Foremind",
            "version": __version__,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": _OVERVIEW,
        },
        "servers": [{"url": "http://127.0.0.1:8770"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {name: _cleaned(schema) for name, schema in components.items()},
            "responses": {
                f"Error{status}": _json_response(text, error_schema)
                for status, text in _ERRORS.items()
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
    }


def _cleaned(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the indentation of the docstring that describes it."""
    if "description" not in schema:
        return schema
    return schema | {"description": inspect.cleandoc(schema["description"])}


def _operation_object(
    operation: Operation, schema_of: Mapping[str, Any], error_schema: Any
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "description": f"{operation.description}\n\n{_authorization(operation)}",
        "parameters": _parameters(operation),
        "responses": _responses(operation, schema_of, error_schema),
    }
    if operation.scope is None:
        described["security"] = [{}]
    if operation.body is not None:
        schema = TEXT if operation.body is bytes else schema_of[repr(operation.body)]
        described["requestBody"] = {
            "required": True,
            "content": {
                media_type: {"schema": TEXT if media_type in operation.file_types else schema}
                for media_type in operation.media_types
            },
        }
    return described


def _authorization(operation: Operation) -> str:
    if operation.scope is None:
        return "Requires no token."
    if not operation.scope:
        return "Requires a token, of any scope."
    return f"Requires the scope `{operation.scope}`."


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    path_schemas = _PATH_PARAMETERS
    if operation.path.startswith("/v1/users/"):
        path_schemas = path_schemas | {"id": _USER_ID}
    in_path = [
        _parameter(name, "path", path_schemas[name]) | {"required": True}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    in_query = [
        _parameter(name, "query", schema) | {"required": name in operation.required}
        for name, schema in operation.parameters.items()
    ]
    return in_path + in_query


def _parameter(name: str, location: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": location,
        "description": schema["description"],
        "schema": {key: value for key, value in schema.items() if key != "description"},
    }


def _responses(
    operation: Operation, schema_of: Mapping[str, Any], error_schema: Any
) -> dict[str, Any]:
    others = {
        str(status): _json_response(HTTPStatus(status).phrase, schema_of[repr(shape)])
        for status, shape in operation.other_responses.items()
    }
    errors = {
        str(status): {"$ref": f"#/components/responses/Error{status}"}
        for status in _error_statuses(operation)
    }
    schema = schema_of[repr(operation.response)]
    success = {
        "description": HTTPStatus(operation.status).phrase,
        "content": {operation.media_type: {"schema": schema}}
        | {file_type: {"schema": TEXT} for file_type in _returned_file_types(operation)},
    }
    return {
        **others,
        **errors,
        str(operation.status): success,
        "default": _json_response("Any other error.", error_schema),
    }


def _returned_file_types(operation: Operation) -> tuple[str, ...]:
    return operation.file_types if operation.body is None else ()


def _error_statuses(operation: Operation) -> list[int]:
    """Return the statuses of the errors that an operation may return."""
    impossible = set(operation.other_responses)
    if operation.method == "GET":
        impossible.add(409)
    if operation.scope is None:
        impossible.add(429)
    if operation.body is None:
        impossible |= {413, 415}
    if "{" not in operation.path:
        impossible.add(404)
    return [status for status in _ERRORS if status not in impossible]


def _json_response(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _operation_id(operation: Operation) -> str:
    words = [word for word in re.split(r"\W+", operation.path) if word not in ("", "v1", "json")]
    return "_".join([operation.method.lower(), *words])
