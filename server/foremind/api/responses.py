"""How requests are answered: JSON, and errors that name the field."""

import math
from collections.abc import Awaitable, Callable

import msgspec
import structlog
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
    TemporaryError,
    TooLarge,
    UnsupportedMediaType,
)

_log = structlog.get_logger("foremind.api")

#: The status of each kind of error; the first that fits counts.
STATUSES: tuple[tuple[type[ForemindError], int], ...] = (
    (NotAuthenticated, 401),
    (NotAllowed, 403),
    (NotFound, 404),
    (Conflict, 409),
    (TooLarge, 413),
    (UnsupportedMediaType, 415),
    (RateLimited, 429),
    (RequestError, 400),
    (TemporaryError, 503),
    (ForemindError, 500),
)


class FieldProblem(msgspec.Struct, frozen=True):
    """What went wrong; `param` names the field, and `retryable` says that later it may succeed."""

    type: str
    code: str
    message: str
    param: str | None
    retryable: bool


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every answer that is an error."""

    error: FieldProblem


def answered(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Answer every error of an endpoint as JSON with a fitting status."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ForemindError as error:
            if error.kind == ForemindError.kind:
                _log.error("request.failed", code=error.code, reason=error.message)
            return problem_response(error)
        except HTTPException as error:
            return await routing_problem(request, error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except Exception:  # a defect; who asked is told no more than that
            _log.exception("request.failed")
            return problem_response(ForemindError("The request could not be answered."))

    return guarded


def problem_response(error: ForemindError, headers: dict[str, str] | None = None) -> Response:
    """Return an error as it is answered."""
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    told = dict(headers or {})
    if isinstance(error, NotAuthenticated):
        told["www-authenticate"] = "Bearer"
    if isinstance(error, RateLimited):
        told["retry-after"] = str(math.ceil(error.retry_after_s))
    problem = FieldProblem(error.kind, error.code, error.message, error.param, error.retryable)
    return json_response(ErrorResponse(problem), status, told)


async def routing_problem(request: Request, error: Exception) -> Response:
    """Answer what no endpoint was found for: an unknown path, or a method that it has not."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        told = InvalidMessage(
            f"method: expected one of {allowed}", param="method", code="method_not_allowed"
        )
        answer = problem_response(told, {"allow": allowed})
        answer.status_code = 405
        return answer
    return problem_response(nothing_here())


def nothing_here() -> NotFound:
    """Return what is told of an unknown path."""
    return NotFound("path: expected one that is served here", param="path")


def _methods(request: Request) -> set[str]:
    """Return the methods that a path is served under; files, which have no route, are only read."""
    served = [
        getattr(route, "methods", None) or ()
        for route in request.app.routes
        if route.matches(request.scope)[0] is not Match.NONE
    ]
    return {"GET", "HEAD"} if not served else {method for each in served for method in each}


def json_response(
    content: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return anything that msgspec can encode, as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
