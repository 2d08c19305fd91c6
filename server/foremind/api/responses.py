"""JSON responses, and errors as responses."""

import math
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from foremind.domain.errors import (
    Conflict,
    ForemindError,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RateLimited,
    RequestError,
    StorageFull,
    TemporaryError,
    TooLarge,
    UnsupportedMediaType,
)

_log = structlog.get_logger("foremind.api")

#: The HTTP status of each kind of error; the first match applies.
STATUSES: tuple[tuple[type[ForemindError], int], ...] = (
    (NotAuthenticated, 401),
    (NotAllowed, 403),
    (NotFound, 404),
    (Conflict, 409),
    (TooLarge, 413),
    (StorageFull, 413),
    (UnsupportedMediaType, 415),
    (RateLimited, 429),
    (RequestError, 400),
    (TemporaryError, 503),
    (ForemindError, 500),
)


class CreatedResponse(msgspec.Struct):
    """The id of the new resource."""

    id: str


class DoneResponse(msgspec.Struct):
    """The outcome of an operation without other results."""

    status: str


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong.

    `type` is the category and `code` the specific error, both for programs; `message` is for
    people. `param` names the field or parameter at fault, if there is one. If `retryable`, the same
    request may succeed later: in `retry_after_s` seconds, if that is known.
    """

    type: str
    code: str
    message: str
    param: str | None
    retryable: bool
    retry_after_s: float | UnsetType = UNSET


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: ErrorDetail


def with_error_responses(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that turns every exception into a JSON error response."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ForemindError as error:
            if error.kind == ForemindError.kind:
                _log.error("request.failed", code=error.code, reason=error.message)
            return error_response(error)
        except HTTPException as error:
            return await routing_error_response(request, error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody receives it
        except Exception:  # a bug: the client gets no details
            _log.exception("request.failed")
            return error_response(ForemindError("Internal server error."))

    return guarded


def error_response(error: ForemindError, headers: dict[str, str] | None = None) -> Response:
    """Return the response for an error."""
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    headers = dict(headers or {})
    if isinstance(error, NotAuthenticated):
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return json_response(error_body(error), status, headers)


def error_body(error: ForemindError) -> ErrorResponse:
    """Return the body of the response for an error."""
    return ErrorResponse(
        ErrorDetail(
            error.kind,
            error.code,
            error.message,
            error.param,
            error.retryable,
            UNSET if error.retry_after_s is None else error.retry_after_s,
        )
    )


async def routing_error_response(request: Request, error: Exception) -> Response:
    """Return the response to an unknown path (404), or to a method that it does not have (405)."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        not_allowed = InvalidMessage(
            f"method: expected one of {allowed}", param="method", code="method_not_allowed"
        )
        response = error_response(not_allowed, {"allow": allowed})
        response.status_code = 405
        return response
    return error_response(unknown_path())


def unknown_path() -> NotFound:
    """Return the error for an unknown path."""
    return NotFound("path: unknown path", param="path")


def _methods(request: Request) -> set[str]:
    """Return the methods that a path has; files, which have no route, are read-only."""
    method_sets = [
        getattr(route, "methods", None) or ()
        for route in request.app.routes
        if route.matches(request.scope)[0] is not Match.NONE
    ]
    return {"GET", "HEAD"} if not method_sets else {name for names in method_sets for name in names}


def json_response(
    content: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return anything that msgspec can encode, as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
