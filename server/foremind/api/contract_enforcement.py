"""Holds every request to the contract: what it does not describe is refused, never ignored.

A parameter that is misspelt, or that another version knows, would otherwise make a request mean
something else: "forget everything" instead of "forget what is about this".
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foremind.api.dependencies import body_of
from foremind.api.openapi import OPERATIONS, Operation
from foremind.api.responses import answered
from foremind.domain.errors import InvalidMessage, UnsupportedMediaType
from foremind.domain.storable_text import check_storable

_OPERATIONS = {(each.method, each.path): each for each in OPERATIONS}
_MOST_OF_NOTHING = 1000  # bytes of a body that may only be `{}`


class EmptyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request that takes none."""


def conforming(route: Route) -> Route:
    """Return a route that serves only what the contract describes, and answers errors as it says.

    Raises:
        KeyError: the contract does not describe it.
    """
    (method,) = (route.methods or set()) - {"HEAD"}
    operation = _OPERATIONS[method, route.path_format]

    async def endpoint(request: Request) -> Response:
        check_storable({**request.path_params, **request.query_params})
        _check_query(operation, request)
        await _check_body(operation, request)
        answer: Response = await route.endpoint(request)
        return answer

    served = Route(route.path, answered(endpoint), methods=[method])
    served.path = operation.path  # compiled by now: "{id:path}" is no name of the contract's
    return served


def _check_query(operation: Operation, request: Request) -> None:
    known = operation.parameters
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            expected = f"expected one of {', '.join(sorted(known))}" if known else "expected none"
            raise InvalidMessage(f"{name}: unknown query parameter, {expected}", param=name)
        if given.count(name) > 1:
            raise InvalidMessage(f"{name}: expected it once", param=name)


async def _check_body(operation: Operation, request: Request) -> None:
    """Check what is said of a body; read it only where there should be none."""
    length = request.headers.get("content-length", "")
    if not length.strip("0") and "transfer-encoding" not in request.headers:
        return
    # Only a program leaves the type out: of a page's request the origin was checked.
    given = request.headers.get("content-type", operation.media_types[0])
    if given.partition(";")[0].strip().lower() not in operation.media_types:
        raise UnsupportedMediaType(
            f"content-type: expected {' or '.join(operation.media_types)}", param="content-type"
        )
    if operation.body is None:
        await body_of(request, EmptyBody, _MOST_OF_NOTHING)
