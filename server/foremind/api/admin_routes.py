"""Operations of operators on companions, sessions and tokens; all need the scope `admin`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import read_bytes, read_json
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import json_response
from foremind.auth.authority import Authority, require_scope
from foremind.auth.principal import MAX_USER_CHARS
from foremind.cards.card_fields import card_of, companion_of, mended_card, slug_of
from foremind.cards.card_file import FORMATS, MAX_FILE_BYTES, MEDIA_TYPES, read_card, write_card
from foremind.domain.announcements import CompanionChanged
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion, CompanionFile, Notice, first_invalid_field
from foremind.domain.errors import InvalidFile, InvalidMessage, NotFound
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.llm.prompt.token_counter import load_counter
from foremind.lore.lorebook import Lorebook, lorebook_in
from foremind.storage.companion_store import CompanionStore

Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_USER_CHARS)]


class SessionControl(Protocol):
    """The open sessions of this process."""

    def snapshots(self) -> Sequence[object]:
        """Return snapshots of all sessions."""

    def dismiss(self, session_id: str) -> bool:
        """End a session; return False if there is none with this id."""

    async def drain(self, seconds: float) -> None:
        """Refuse new sessions, let replies finish for at most `seconds`, then end all sessions."""


class CompanionSource(Protocol):
    """The companions of this process's open sessions."""

    async def reload(self, announcement: CompanionChanged) -> None:
        """Reload the companion that has changed."""


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services of these routes."""

    authenticator: RequestAuthenticator
    settings: Settings
    clock: Clock
    companions: CompanionStore
    authority: Authority
    sessions: SessionControl
    live_settings: CompanionSource


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user whose tokens are revoked: all issued so far, or only the one with this `jti`."""

    user: Identifier
    token_id: Identifier | None = None


class Revoked(msgspec.Struct, frozen=True):
    """The outcome of a revocation.

    Tokens whose `iat` is at or before `issued_until` are revoked. It is half a minute ahead, as the
    clock of the issuing server may be; null if a single token was revoked.
    """

    issued_until: datetime | None
    status: Literal["ok"] = "ok"


class CompanionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion; its slug is in the path, and `card` is the `data` of a character card."""

    name: str
    persona: str
    greeting: str = ""
    settings: CompanionSettings = CompanionSettings()
    card: dict[str, Any] | None = None


class CompanionDetail(msgspec.Struct, frozen=True):
    """A companion as operators see it; `version` increases with every change.

    `notices` are what was mended, or is not supported, in the card that it was just given.
    """

    id: str
    slug: str
    name: str
    greeting: str
    persona: str
    settings: CompanionSettings
    version: int
    retired: bool
    notices: list[Notice] = []


class CardDetail(msgspec.Struct, frozen=True):
    """A character card as it is read: the slug that its name makes, and its `data`."""

    slug: str
    name: str
    data: dict[str, Any]
    notices: list[Notice]


class _AdminEndpoints:
    def __init__(self, services: AdminServices) -> None:
        self._services = services

    async def list_companions(self, request: Request) -> Response:
        await self._require_admin(request)
        companions = await self._services.companions.list()
        return json_response(
            {"companions": [companion_detail(companion) for companion in companions]}
        )

    async def put_companion(self, request: Request) -> Response:
        await self._require_admin(request)
        body = await read_json(request, CompanionBody)
        companion = CompanionFile(
            request.path_params["slug"],
            body.name,
            body.persona,
            body.greeting,
            body.settings,
            body.card,
        )
        problem = first_invalid_field(companion)
        if problem is not None:
            raise InvalidMessage(": ".join(problem), param=problem[0])
        await asyncio.to_thread(_check_tokenizer, companion.settings.llm_tokenizer)
        notices: list[Notice] = []
        if companion.card is not None:
            card = mended_card(companion.card, "card", notices)
            companion = msgspec.structs.replace(companion, card=card)
        await asyncio.to_thread(Lorebook.parse, lorebook_in(companion.card))
        stored = await self._services.companions.put(companion)
        await self._services.live_settings.reload(CompanionChanged(stored.id, stored.version))
        return json_response(companion_detail(stored, notices))

    async def retire_companion(self, request: Request) -> Response:
        await self._require_admin(request)
        services = self._services
        await services.companions.retire(request.path_params["slug"], services.clock.now())
        return json_response({"status": "ok"})

    async def list_sessions(self, request: Request) -> Response:
        await self._require_admin(request)
        return json_response({"sessions": self._services.sessions.snapshots()})

    async def end_session(self, request: Request) -> Response:
        await self._require_admin(request)
        if not self._services.sessions.dismiss(request.path_params["session"]):
            raise NotFound("session: expected a session of this process", param="session")
        return json_response({"status": "ok"})

    async def revoke_tokens(self, request: Request) -> Response:
        await self._require_admin(request)
        body = await read_json(request, Revocation)
        until = await self._services.authority.revoke(body.user, body.token_id)
        return json_response(Revoked(None if body.token_id else until), 201)

    async def drain(self, request: Request) -> Response:
        await self._require_admin(request)
        services = self._services
        response = json_response({"status": "draining"}, 202)
        response.background = BackgroundTask(services.sessions.drain, services.settings.drain_s)
        return response

    async def _require_admin(self, request: Request) -> None:
        require_scope(await self._services.authenticator.authenticate(request), "admin")


def admin_routes(services: AdminServices) -> list[BaseRoute]:
    """Return the routes below `/v1/admin`."""
    endpoints = _AdminEndpoints(services)
    path = "/v1/admin"
    return [
        Route(path + "/companions", endpoints.list_companions),
        Route(path + "/companions/{slug}", endpoints.put_companion, methods=["PUT"]),
        Route(path + "/companions/{slug}", endpoints.retire_companion, methods=["DELETE"]),
        Route(path + "/sessions", endpoints.list_sessions),
        Route(path + "/sessions/{session}", endpoints.end_session, methods=["DELETE"]),
        Route(path + "/revocations", endpoints.revoke_tokens, methods=["POST"]),
        Route(path + "/drain", endpoints.drain, methods=["POST"]),
    ]


def _check_tokenizer(path: str | None) -> None:
    try:
        if path is not None:
            load_counter(path)
    except InvalidFile:  # its message would reveal what is in the file
        raise InvalidMessage(
            "settings.llm_tokenizer: expected the path of a tokenizer.json on the server",
            param="settings.llm_tokenizer",
        ) from None


def companion_detail(companion: Companion, notices: Sequence[Notice] = ()) -> CompanionDetail:
    """Return a companion as operators see it."""
    return CompanionDetail(
        str(companion.id),
        companion.slug,
        companion.name,
        companion.greeting,
        companion.persona,
        companion.settings,
        companion.version,
        companion.retired,
        list(notices),
    )


class _CardEndpoints:
    def __init__(self, services: AdminServices) -> None:
        self._services = services

    async def put(self, request: Request) -> Response:
        await self._require_admin(request)
        file = await read_bytes(request, MAX_FILE_BYTES)
        slug = request.path_params["slug"]
        companion, notices = await asyncio.to_thread(companion_in, file, slug)
        stored = await self._services.companions.put(companion, keep_settings=True)
        await self._services.live_settings.reload(CompanionChanged(stored.id, stored.version))
        return json_response(companion_detail(stored, notices))

    async def read(self, request: Request) -> Response:
        await self._require_admin(request)
        file = await read_bytes(request, MAX_FILE_BYTES)
        card = await asyncio.to_thread(read_card, file, request.query_params.get("name"))
        name = card.data["name"]
        return json_response(CardDetail(slug_of(name), name, card.data, card.notices))

    async def get(self, request: Request) -> Response:
        await self._require_admin(request)
        name = request.query_params.get("as", "json")
        card_format = next((known for known in FORMATS if known == name), None)
        if card_format is None:
            raise InvalidMessage(f"as: expected one of {', '.join(FORMATS)}", param="as")
        companion = await self._services.companions.find(request.path_params["slug"])
        file = await asyncio.to_thread(write_card, card_of(companion), card_format)
        # Headers are ASCII, but a slug may be in any script (RFC 8187).
        name = quote(f"{companion.slug}.{card_format}")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(file, headers=headers, media_type=MEDIA_TYPES[card_format])

    async def _require_admin(self, request: Request) -> None:
        require_scope(await self._services.authenticator.authenticate(request), "admin")


def card_routes(services: AdminServices) -> list[BaseRoute]:
    """Return the routes that read, store and give back character cards."""
    endpoints = _CardEndpoints(services)
    path = "/v1/admin/companions/{slug}/card"
    return [
        Route(path, endpoints.put, methods=["PUT"]),
        Route(path, endpoints.get),
        Route("/v1/admin/cards", endpoints.read, methods=["POST"]),
    ]


def companion_in(file: bytes, slug: str) -> tuple[CompanionFile, list[Notice]]:
    """Return the companion of a card's file, checked, and what was mended in the card.

    Raises:
        TooLarge, InvalidMessage: as `read_card`; and of the slug and the lorebook.
    """
    card = read_card(file, slug)
    companion = companion_of(card.data, slug)
    problem = first_invalid_field(companion)
    if problem is not None:
        raise InvalidMessage(": ".join(problem), param=problem[0])
    Lorebook.parse(lorebook_in(companion.card))
    return companion, card.notices
