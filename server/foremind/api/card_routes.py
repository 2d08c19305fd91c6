"""The character cards of companions, for operators."""

import asyncio
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.admin_routes import AdminServices, companion_detail
from foremind.api.dependencies import read_bytes
from foremind.api.responses import json_response
from foremind.auth.authority import require_scope
from foremind.cards.card_fields import card_of, companion_of
from foremind.cards.card_file import FORMATS, MAX_FILE_BYTES, MEDIA_TYPES, read_card, write_card
from foremind.domain.announcements import CompanionChanged
from foremind.domain.companion import CompanionFile, first_invalid_field
from foremind.domain.errors import InvalidMessage
from foremind.lore.lorebook import Lorebook, lorebook_in


class _CardEndpoints:
    def __init__(self, services: AdminServices) -> None:
        self._services = services

    async def put(self, request: Request) -> Response:
        await self._require_admin(request)
        file = await read_bytes(request, MAX_FILE_BYTES)
        companion = await asyncio.to_thread(companion_in, file, request.path_params["slug"])
        stored = await self._services.companions.put(companion, keep_settings=True)
        await self._services.live_settings.reload(CompanionChanged(stored.id, stored.version))
        return json_response(companion_detail(stored))

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
    """Return the routes of `/v1/admin/companions/{slug}/card`."""
    endpoints = _CardEndpoints(services)
    path = "/v1/admin/companions/{slug}/card"
    return [Route(path, endpoints.put, methods=["PUT"]), Route(path, endpoints.get)]


def companion_in(file: bytes, slug: str) -> CompanionFile:
    """Return the companion of a card's file, checked.

    Raises:
        TooLarge, InvalidMessage: as `read_card`; and of the slug and the lorebook.
    """
    companion = companion_of(read_card(file), slug)
    problem = first_invalid_field(companion)
    if problem is not None:
        raise InvalidMessage(": ".join(problem), param=problem[0])
    Lorebook.parse(lorebook_in(companion.card))
    return companion
