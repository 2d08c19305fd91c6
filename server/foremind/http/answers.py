"""How requests are answered: JSON, and errors that name the field."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.errors import Conflict, ForemindError, NotAllowed, NotAuthenticated, NotFound


def answered(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Answer Foremind's own errors as JSON with a fitting status."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except NotAuthenticated as error:
            return json_response(_body(error), 401, {"www-authenticate": "Bearer"})
        except NotAllowed as error:
            return json_response(_body(error), 403)
        except NotFound as error:
            return json_response(_body(error), 404)
        except Conflict as error:
            return json_response(_body(error), 409)
        except ForemindError as error:
            return json_response(_body(error), 503 if error.retryable else 400)

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
