"""How requests are answered: JSON, and errors that name the field."""

import math
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from foremind.errors import (
    Conflict,
    ForemindError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RateLimited,
)
from foremind.storable import check_storable

_log = structlog.get_logger("foremind.http")


def answered(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Answer Foremind's own errors as JSON with a fitting status."""

    async def guarded(request: Request) -> Response:
        try:
            check_storable({**request.path_params, **request.query_params})
            return await endpoint(request)
        except NotAuthenticated as error:
            return json_response(_body(error), 401, {"www-authenticate": "Bearer"})
        except NotAllowed as error:
            return json_response(_body(error), 403)
        except NotFound as error:
            return json_response(_body(error), 404)
        except Conflict as error:
            return json_response(_body(error), 409)
        except RateLimited as error:
            seconds = str(math.ceil(error.retry_after_s))
            return json_response(_body(error), 429, {"retry-after": seconds})
        except ForemindError as error:
            return json_response(_body(error), 503 if error.retryable else 400)
        except Exception:  # a defect; who asked is told no more than that
            _log.exception("request.failed")
            return json_response(_body(ForemindError("The request could not be answered.")), 500)

    return guarded


def _body(error: ForemindError) -> dict[str, object]:
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "param": error.param,
            "retryable": error.retryable,
        }
    }


def json_response(
    content: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return anything that msgspec can encode, as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
