"""Enforces the OpenAPI contract: what it does not describe is refused, never ignored.

Ignoring a misspelt parameter, or one of another version, could change what a request means: erase
everything instead of only what is about some words.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foremind.api.dependencies import decoded, read_json
from foremind.api.operations import OPERATIONS, Operation
from foremind.api.responses import with_error_responses
from foremind.domain.errors import InvalidMessage, UnsupportedMediaType
from foremind.domain.storable_text import check_storable

_OPERATIONS = {(operation.method, operation.path): operation for operation in OPERATIONS}
_MAX_EMPTY_BODY_BYTES = 1000  # of a body that may only be `{}`


class EmptyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request that takes none."""


def enforce_contract(route: Route) -> Route:
    """Return a route that refuses what the contract does not describe, with JSON errors.

    Raises:
        KeyError: the contract does not describe the route.
    """
    (method,) = (route.methods or set()) - {"HEAD"}
    operation = _OPERATIONS[method, route.path_format]

    async def endpoint(request: Request) -> Response:
        _check_encoding(request)
        check_storable({**request.path_params, **request.query_params})
        _check_query(operation, request)
        await _check_body(operation, request)
        response: Response = await route.endpoint(request)
        return response

    enforced = Route(route.path, with_error_responses(endpoint), methods=[method])
    enforced.path = operation.path  # already compiled; the contract has no converters ("{id:path}")
    return enforced


def _check_encoding(request: Request) -> None:
    """Check that the path and the query are UTF-8; Starlette replaces what is not.

    A line break at the end of a path is no part of its last parameter for Starlette: what it names
    would be taken for something else.
    """
    if "\n" in decoded(request.scope.get("raw_path") or b"", "path"):
        raise InvalidMessage("path: expected text without line breaks", param="path")
    for part in request.scope["query_string"].split(b"&"):
        name, _, value = part.partition(b"=")
        decoded(value, decoded(name, "query"))


def _check_query(operation: Operation, request: Request) -> None:
    known = operation.parameters
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            expected = f"expected one of {', '.join(sorted(known))}" if known else "expected none"
            raise InvalidMessage(f"{name}: unknown query parameter, {expected}", param=name)
        if names.count(name) > 1:
            raise InvalidMessage(f"{name}: expected a single value", param=name)


async def _check_body(operation: Operation, request: Request) -> None:
    """Check the headers that describe a body, and that there is none where none is expected."""
    length = request.headers.get("content-length", "")
    if not length.strip("0") and "transfer-encoding" not in request.headers:
        return
    # A missing type is safe: the origin of requests from web pages has been checked.
    content_type = request.headers.get("content-type", operation.media_types[0])
    if content_type.partition(";")[0].strip().lower() not in operation.media_types:
        raise UnsupportedMediaType(
            f"content-type: expected {' or '.join(operation.media_types)}", param="content-type"
        )
    if operation.body is None:
        await read_json(request, EmptyBody, _MAX_EMPTY_BODY_BYTES)
