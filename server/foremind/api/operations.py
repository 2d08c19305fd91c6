"""An operation of the HTTP API: declared above its handler, published by `openapi`, and enforced.

What an operation does not describe is refused, never ignored: ignoring a misspelt parameter, or one
of another version, could change what a request means: erase everything instead of only what is
about some words.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from inspect import getdoc
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foremind.api.dependencies import decoded, read_json
from foremind.api.request_authentication import Caller, RequestAuthenticator
from foremind.api.responses import with_error_responses
from foremind.auth.principal import Scope
from foremind.domain.errors import InvalidMessage, UnsupportedMediaType
from foremind.domain.storable_text import check_storable
from foremind.retrieval.documents.text_extraction import MEDIA_TYPES

TEXT: dict[str, Any] = {"type": "string"}
#: Ids are strings in paths and queries, as they are in JSON.
ID: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,18}$"}
#: The query parameters of a list that is returned in pages.
PAGE: dict[str, dict[str, Any]] = {
    "after": ID
    | {"description": "Return what follows this id: `next_after` of the page before. Default: 0."},
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "description": "The maximum number of elements of the page. Default: 100.",
    },
}
_USER = TEXT | {
    "description": "In open mode, the user who makes the request. With a token of scope `admin`, "
    "the user on whose behalf it is made. With any other token only its own user.",
}
_MAX_EMPTY_BODY_BYTES = 1000  # of a body that may only be `{}`

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, and a decorator of what handles it.

    Attributes:
        route: the path as it is matched, which may have converters ("{id:path}").
        response: the shape of the response with `status`.
        body: the shape of the request body; `bytes` for a document, None for no body.
        query: the schemas of query parameters by name, other than `user`.
        required: the names of query parameters that must be given.
        scope: the scope that a token needs; "" for any token, None if no token is needed.
        caller: whom it acts for; in open mode, there is a user only for `user`.
        media_type: of the response with `status`.
        other_responses: shapes of JSON responses with other statuses that are not errors.
        file_types: media types that the request body may have instead of JSON; or, where there is
            no body, the response with `status`.
    """

    method: str
    route: str
    response: Any
    status: int = 200
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    scope: Scope | Literal[""] | None = "memory:read"
    caller: Caller = "user"
    media_type: str = "application/json"
    other_responses: Mapping[int, Any] = field(default_factory=dict)
    file_types: tuple[str, ...] = ()
    summary: str = ""
    description: str = ""

    def __call__(self, handler: Handler) -> Handler:
        """Describe the method that handles it; its docstring is the summary and the description."""
        summary, _, description = (getdoc(handler) or "").partition(".\n\n")
        vars(handler)["operation"] = replace(
            self, summary=summary, description=description.replace("\n", " ")
        )
        return handler

    @property
    def path(self) -> str:
        """The path as it is published."""
        return self.route.replace(":path", "")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The schemas of all query parameters by name."""
        return self.query if self.scope is None else {**self.query, "user": _USER}

    @property
    def media_types(self) -> tuple[str, ...]:
        """The accepted media types of the request body."""
        if self.body is bytes:
            return MEDIA_TYPES
        return ("application/json", *(self.file_types if self.body is not None else ()))


def operations_of(endpoints: type) -> Iterator[tuple[str, Operation]]:
    """Yield the operations that a class handles, each after the name of the method."""
    for name, member in vars(endpoints).items():
        if described := getattr(member, "operation", None):
            yield name, described


def routes_of(endpoints: object, authenticator: RequestAuthenticator) -> list[Route]:
    """Return the routes of the operations that an object handles.

    They refuse what these do not describe and whom they do not allow, and answer with JSON errors.
    A handler is given the request and its principal: None if no token is needed, or there is none.
    """
    return [
        _enforced(described, getattr(endpoints, name), authenticator)
        for name, described in operations_of(type(endpoints))
    ]


def _enforced(
    described: Operation,
    handle: Callable[..., Awaitable[Response]],
    authenticator: RequestAuthenticator,
) -> Route:
    async def endpoint(request: Request) -> Response:
        _check_encoding(request)
        check_storable({**request.path_params, **request.query_params})
        _check_query(described, request)
        principal = None
        if described.scope is not None:
            principal = await authenticator.authenticate(request, described.caller, described.scope)
        await _check_body(described, request)
        return await handle(request, principal)

    route = Route(described.route, with_error_responses(endpoint), methods=[described.method])
    route.path = described.path  # already compiled; what is published has no converters
    return route


class _EmptyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request that takes none."""


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


def _check_query(described: Operation, request: Request) -> None:
    known = described.parameters
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            expected = f"expected one of {', '.join(sorted(known))}" if known else "expected none"
            raise InvalidMessage(f"{name}: unknown query parameter, {expected}", param=name)
        if names.count(name) > 1:
            raise InvalidMessage(f"{name}: expected a single value", param=name)


async def _check_body(described: Operation, request: Request) -> None:
    """Check the headers that describe a body, and that there is none where none is expected."""
    length = request.headers.get("content-length", "")
    if not length.strip("0") and "transfer-encoding" not in request.headers:
        return
    # A missing type is safe: the origin of requests from web pages has been checked.
    content_type = request.headers.get("content-type", described.media_types[0])
    if content_type.partition(";")[0].strip().lower() not in described.media_types:
        raise UnsupportedMediaType(
            f"content-type: expected {' or '.join(described.media_types)}", param="content-type"
        )
    if described.body is None:
        await read_json(request, _EmptyBody, _MAX_EMPTY_BODY_BYTES)
