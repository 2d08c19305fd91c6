"""Operations of operators on companions, sessions and tokens; all need the scope `admin`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import read_bytes, read_json
from foremind.api.operations import TEXT, Operation
from foremind.api.responses import DoneResponse, json_response
from foremind.auth.authority import Authority
from foremind.auth.principal import MAX_USER_CHARS, Principal
from foremind.cards.card_fields import card_of, companion_of, mended_card, slug_of
from foremind.cards.card_file import (
    FORMATS,
    MAX_FILE_BYTES,
    MEDIA_TYPES,
    ReadCard,
    read_card,
    write_card,
)
from foremind.domain.announcements import CompanionChanged
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion, CompanionFile, Notice, first_invalid_field
from foremind.domain.errors import InvalidFile, InvalidMessage, NotFound
from foremind.domain.settings.settings import CompanionSettings, Settings, is_loopback
from foremind.gateway.live_settings import LiveSettings
from foremind.gateway.session_registry import SessionRegistry
from foremind.llm.model_probe import LocalServer, ModelProbes, ProbedModel, find_local_servers
from foremind.llm.prompt.token_counter import load_counter
from foremind.lore.lorebook import check_lorebook, with_lorebook
from foremind.storage.companion_store import CompanionStore

Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_USER_CHARS)]


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services of these routes."""

    settings: Settings
    clock: Clock
    companions: CompanionStore
    authority: Authority
    sessions: SessionRegistry
    live_settings: LiveSettings
    models: ModelProbes


class LanguageModels(msgspec.Struct, frozen=True):
    """The language models in use; without any, those that were found on this machine."""

    models: list[ProbedModel]
    found: list[LocalServer]


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
    """A character card as it is read: the slug that its name makes, and its `data`.

    Of a lorebook by itself, both names are empty.
    """

    slug: str
    name: str
    data: dict[str, Any]
    notices: list[Notice]


class Companions(msgspec.Struct):
    """Companions as operators see them."""

    companions: list[CompanionDetail]


class OpenSessions(msgspec.Struct):
    """The sessions of the process that answers."""

    sessions: list[dict[str, Any]]


class AdminEndpoints:
    """Operations below `/v1/admin`."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services

    @Operation("GET", "/v1/admin/companions", Companions, scope="admin")
    async def list_companions(self, request: Request, _: Principal) -> Response:
        """List companions for operators.

        Returns every companion that is not retired, with its persona, settings and version.
        """
        companions = await self._services.companions.list()
        return json_response(
            {"companions": [companion_detail(companion) for companion in companions]}
        )

    @Operation(
        "PUT", "/v1/admin/companions/{slug}", CompanionDetail, body=CompanionBody, scope="admin"
    )
    async def put_companion(self, request: Request, _: Principal) -> Response:
        """Create or replace a companion.

        Creates the companion, or replaces its name, persona, greeting and settings. Open sessions
        use the new version at once. `version` increases with every change.
        """
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
        notices += await asyncio.to_thread(check_lorebook, companion.card)
        stored = await self._services.companions.put(companion)
        await self._services.live_settings.reload(CompanionChanged(stored.id, stored.version))
        return json_response(companion_detail(stored, notices))

    @Operation("DELETE", "/v1/admin/companions/{slug}", DoneResponse, scope="admin")
    async def retire_companion(self, request: Request, _: Principal) -> Response:
        """Retire a companion.

        No more sessions can be opened with the companion, until it is created again with PUT. Its
        users keep what was said, and can still read, export and erase it.
        """
        services = self._services
        await services.companions.retire(request.path_params["slug"], services.clock.now())
        return json_response({"status": "ok"})

    @Operation("GET", "/v1/admin/models", LanguageModels, scope="admin")
    async def list_models(self, request: Request, _: Principal) -> Response:
        """List language models.

        Asks the model servers in use what they are, what they read and whether they think aloud,
        and says what to look at. Where the server has none and listens on loopback, names those at
        the usual ports of this machine; they are not used.
        """
        services = self._services
        offers = services.settings.llm_url is None and is_loopback(services.settings.host)
        found = await find_local_servers() if offers else []
        return json_response({"models": await services.models.probe(), "found": found})

    @Operation("GET", "/v1/admin/sessions", OpenSessions, scope="admin")
    async def list_sessions(self, request: Request, _: Principal) -> Response:
        """List open sessions.

        Returns the sessions of the process that answers.
        """
        return json_response({"sessions": self._services.sessions.snapshots()})

    @Operation("DELETE", "/v1/admin/sessions/{session}", DoneResponse, scope="admin")
    async def end_session(self, request: Request, _: Principal) -> Response:
        """End a session.

        Ends a session of the process that answers, and closes its connection with 4403.
        """
        if not self._services.sessions.dismiss(request.path_params["session"]):
            raise NotFound("session: expected a session of this process", param="session")
        return json_response({"status": "ok"})

    @Operation("POST", "/v1/admin/revocations", Revoked, status=201, body=Revocation, scope="admin")
    async def revoke_tokens(self, request: Request, _: Principal) -> Response:
        """Revoke tokens.

        Revokes one token of a user by its `jti`, or all tokens issued so far, in every process and
        at once. Because the clock of the server that issues tokens may be ahead, tokens that claim
        to be issued up to `issued_until`, half a minute from now, are revoked too: to let the user
        in again, issue a token after that.
        """
        body = await read_json(request, Revocation)
        until = await self._services.authority.revoke(body.user, body.token_id)
        return json_response(Revoked(None if body.token_id else until), 201)

    @Operation("POST", "/v1/admin/drain", DoneResponse, status=202, scope="admin")
    async def drain(self, request: Request, _: Principal) -> Response:
        """Drain the process.

        Stops accepting sessions, gives replies in progress `FOREMIND_DRAIN_S` seconds to finish,
        and then closes all connections with 4503. Returns at once. For use before a shutdown: there
        is no way back.
        """
        services = self._services
        response = json_response({"status": "draining"}, 202)
        response.background = BackgroundTask(services.sessions.drain, services.settings.drain_s)
        return response


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


_CARD_TYPES = ("image/png", "image/apng", "application/zip", "application/octet-stream")


class CardEndpoints:
    """Operations on character cards."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services

    @Operation(
        "PUT",
        "/v1/admin/companions/{slug}/card",
        CompanionDetail,
        body=dict[str, Any],
        file_types=_CARD_TYPES,
        scope="admin",
    )
    async def put(self, request: Request, _: Principal) -> Response:
        """Create or replace a companion by a character card.

        Takes a Character Card of version 1, 2 or 3, of at most 20 MB: JSON, PNG, APNG or CHARX,
        known by its first bytes. Name, persona and greeting become those of the card, which is
        kept; a companion that exists keeps its settings. Open sessions use it at once. `notices`
        lists what is not as the specifications say, and was read as far as it can be, and what is
        not supported. A lorebook by itself, as a world of SillyTavern is, takes the place of that
        of a companion that exists.
        """
        file = await read_bytes(request, MAX_FILE_BYTES)
        slug = request.path_params["slug"]
        card = await asyncio.to_thread(read_card, file, slug)
        known = await self._services.companions.find(slug) if card.is_lorebook else None
        companion, notices = await asyncio.to_thread(companion_in, card, slug, known)
        stored = await self._services.companions.put(companion, keep_settings=True)
        await self._services.live_settings.reload(CompanionChanged(stored.id, stored.version))
        return json_response(companion_detail(stored, notices))

    @Operation(
        "POST",
        "/v1/admin/cards",
        CardDetail,
        body=dict[str, Any],
        query={
            "name": TEXT | {"description": "The name of a character whose card has none."},
        },
        file_types=_CARD_TYPES,
        scope="admin",
    )
    async def read(self, request: Request, _: Principal) -> Response:
        """Read a character card.

        Reads a file as PUT of a card does, and stores nothing: what the card says, and the slug
        that its name makes, which may be empty.
        """
        file = await read_bytes(request, MAX_FILE_BYTES)
        card = await asyncio.to_thread(read_card, file, request.query_params.get("name"))
        name = "" if card.is_lorebook else card.data["name"]
        return json_response(CardDetail(slug_of(name), name, card.data, card.notices))

    @Operation(
        "GET",
        "/v1/admin/companions/{slug}/card",
        dict[str, Any],
        query={
            "as": {
                "type": "string",
                "enum": list(FORMATS),
                "description": "The format of the file. Default: `json`.",
            }
        },
        file_types=("image/png", "application/zip"),
        scope="admin",
    )
    async def get(self, request: Request, _: Principal) -> Response:
        """Get a companion's character card.

        Returns the card that the companion was made of, its `data` as it was given; or, for a
        companion that was none's, a card of version 2 made of it.
        """
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


def companion_in(
    card: ReadCard, slug: str, known: Companion | None
) -> tuple[CompanionFile, list[Notice]]:
    """Return the companion of a card's file, checked, and what was mended or is not supported.

    Args:
        known: the companion that a lorebook is for that is in a file by itself.

    Raises:
        InvalidMessage: the slug or the lorebook is invalid; names the field.
    """
    if known is None:
        companion = companion_of(card.data, slug)
    else:
        companion = with_lorebook(known, card.data["character_book"])
    problem = first_invalid_field(companion)
    if problem is not None:
        raise InvalidMessage(": ".join(problem), param=problem[0])
    return companion, [*card.notices, *check_lorebook(companion.card)]
