"""What operators do: companions, sessions, revocations, draining. All need the scope `admin`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import body_of
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import json_response
from foremind.auth.authority import Authority, require
from foremind.auth.principal import MAX_USER_CHARS
from foremind.domain.announcements import CompanionChanged
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion, CompanionFile, CompanionSettings, wrong_field
from foremind.domain.errors import InvalidFile, InvalidMessage, NotFound
from foremind.domain.settings import Settings
from foremind.llm.prompt.token_counter import load_counter
from foremind.storage.companion_store import CompanionStore

Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_USER_CHARS)]


class SessionControl(Protocol):
    """The sessions of this process."""

    def listed(self) -> Sequence[object]:
        """Return what is told of each."""

    def dismiss(self, session_id: str) -> bool:
        """End one; False where there is none."""

    async def drain(self, seconds: float) -> None:
        """Take no more, let replies finish for `seconds`, end every one."""


class CompanionSource(Protocol):
    """What the open sessions of this process go by."""

    async def changed(self, announcement: CompanionChanged) -> None:
        """Read anew what was changed."""


@dataclass(frozen=True, slots=True)
class AdminServices:
    """What these routes need."""

    entrance: RequestAuthenticator
    settings: Settings
    clock: Clock
    companions: CompanionStore
    authority: Authority
    sessions: SessionControl
    current: CompanionSource


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose tokens no longer count: all that were issued so far, or the one with this `jti`."""

    user: Identifier
    token_id: Identifier | None = None


class Revoked(msgspec.Struct, frozen=True):
    """`issued_until`: tokens that claim to be issued by then no longer count; None for one token.

    That is half a minute ahead, as the clock of who mints them may be.
    """

    issued_until: datetime | None
    status: Literal["ok"] = "ok"


class CompanionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion, whose slug is in the path."""

    name: str
    persona: str
    greeting: str = ""
    settings: CompanionSettings = CompanionSettings()


class CompanionDetail(msgspec.Struct, frozen=True):
    """A companion as operators see it; `version` rises with every change."""

    id: str
    slug: str
    name: str
    greeting: str
    persona: str
    settings: CompanionSettings
    version: int
    retired: bool


def _check_tokenizer(path: str | None) -> None:
    try:
        if path is not None:
            load_counter(path)
    except InvalidFile:  # which says what is in the file
        raise InvalidMessage(
            "settings.llm_tokenizer: expected the path of a tokenizer.json on the server",
            param="settings.llm_tokenizer",
        ) from None


def admin_routes(services: AdminServices) -> list[BaseRoute]:
    """Return the routes below `/v1/admin`."""

    async def admin(request: Request) -> None:
        require(await services.entrance.caller(request), "admin")

    async def companions(request: Request) -> Response:
        await admin(request)
        return json_response(
            {"companions": [_view(each) for each in await services.companions.list()]}
        )

    async def put_companion(request: Request) -> Response:
        await admin(request)
        body = await body_of(request, CompanionBody)
        companion = CompanionFile(
            request.path_params["slug"], body.name, body.persona, body.greeting, body.settings
        )
        wrong = wrong_field(companion)
        if wrong is not None:
            raise InvalidMessage(": ".join(wrong), param=wrong[0])
        await asyncio.to_thread(_check_tokenizer, companion.settings.llm_tokenizer)
        stored = await services.companions.put(companion)
        await services.current.changed(CompanionChanged(stored.id))
        return json_response(_view(stored))

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
        until = await services.authority.revoke(body.user, body.token_id)
        return json_response(Revoked(None if body.token_id else until), 201)

    async def drain(request: Request) -> Response:
        await admin(request)
        answer = json_response({"status": "draining"}, 202)
        answer.background = BackgroundTask(services.sessions.drain, services.settings.drain_s)
        return answer

    path = "/v1/admin"
    return [
        Route(path + "/companions", companions),
        Route(path + "/companions/{slug}", put_companion, methods=["PUT"]),
        Route(path + "/companions/{slug}", retire_companion, methods=["DELETE"]),
        Route(path + "/sessions", sessions),
        Route(path + "/sessions/{session}", end_session, methods=["DELETE"]),
        Route(path + "/revocations", revoke, methods=["POST"]),
        Route(path + "/drain", drain, methods=["POST"]),
    ]


def _view(companion: Companion) -> CompanionDetail:
    return CompanionDetail(
        str(companion.id),
        companion.slug,
        companion.name,
        companion.greeting,
        companion.persona,
        companion.settings,
        companion.version,
        companion.retired,
    )
