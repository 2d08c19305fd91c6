"""What operators do: companions, sessions, revocations, draining. All need the scope `admin`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.clock import Clock
from foremind.companions import CompanionFile, CompanionSettings, wrong_field
from foremind.errors import InvalidMessage, NotFound
from foremind.http.answers import answered, json_response
from foremind.http.callers import body_of
from foremind.http.entrance import Entrance
from foremind.identity.authority import require
from foremind.identity.caller import MAX_USER_CHARS
from foremind.settings import Settings
from foremind.storage.companions import CompanionStore
from foremind.storage.revocations import RevocationStore

Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_USER_CHARS)]


class Sessions(Protocol):
    """The sessions of this process."""

    def listed(self) -> Sequence[object]:
        """Return what is told of each."""

    def dismiss(self, session_id: str) -> bool:
        """End one; False where there is none."""

    async def drain(self, seconds: float) -> None:
        """Take no more, let replies finish for `seconds`, end every one."""


@dataclass(frozen=True, slots=True)
class AdminServices:
    """What these routes need."""

    entrance: Entrance
    settings: Settings
    clock: Clock
    companions: CompanionStore
    revocations: RevocationStore
    sessions: Sessions


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose tokens no longer count: all that were issued so far, or the one with this `jti`."""

    user: Identifier
    token_id: Identifier | None = None


class CompanionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion, whose slug is in the path."""

    name: str
    persona: str
    greeting: str = ""
    settings: CompanionSettings = CompanionSettings()


def admin_routes(services: AdminServices) -> list[BaseRoute]:
    """Return the routes below `/v1/admin`."""

    async def admin(request: Request) -> None:
        require(await services.entrance.caller(request), "admin")

    async def companions(request: Request) -> Response:
        await admin(request)
        return json_response({"companions": await services.companions.list()})

    async def put_companion(request: Request) -> Response:
        await admin(request)
        body = await body_of(request, CompanionBody)
        companion = CompanionFile(
            request.path_params["slug"], body.name, body.persona, body.greeting, body.settings
        )
        wrong = wrong_field(companion, services.settings)
        if wrong is not None:
            raise InvalidMessage(": ".join(wrong), param=wrong[0])
        return json_response(await services.companions.put(companion))

    async def retire_companion(request: Request) -> Response:
        await admin(request)
        await services.companions.retire(request.path_params["slug"], services.clock.now())
        return json_response({"status": "ok"})

    async def sessions(request: Request) -> Response:
        await admin(request)
        return json_response({"sessions": services.sessions.listed()})

    async def end_session(request: Request) -> Response:
        await admin(request)
        if not services.sessions.dismiss(request.path_params["session"]):
            raise NotFound("session: expected a session of this process", param="session")
        return json_response({"status": "ok"})

    async def revoke(request: Request) -> Response:
        await admin(request)
        body = await body_of(request, Revocation)
        await services.revocations.revoke(body.user, body.token_id, services.clock.now())
        return json_response({"status": "ok"}, 201)

    async def drain(request: Request) -> Response:
        await admin(request)
        answer = json_response({"status": "draining"}, 202)
        answer.background = BackgroundTask(services.sessions.drain, services.settings.drain_s)
        return answer

    path = "/v1/admin"
    return [
        Route(path + "/companions", answered(companions)),
        Route(path + "/companions/{slug}", answered(put_companion), methods=["PUT"]),
        Route(path + "/companions/{slug}", answered(retire_companion), methods=["DELETE"]),
        Route(path + "/sessions", answered(sessions)),
        Route(path + "/sessions/{session}", answered(end_session), methods=["DELETE"]),
        Route(path + "/revocations", answered(revoke), methods=["POST"]),
        Route(path + "/drain", answered(drain), methods=["POST"]),
    ]
