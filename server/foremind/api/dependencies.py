"""What the routes of relationships share: services, authorization, parsing, paging."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from foremind.api.json_bodies import Check, SpooledResponses, decode_json, receive_body
from foremind.api.request_authentication import RequestAuthenticator
from foremind.auth.principal import Principal
from foremind.background.worker import BackgroundWorker
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage, NotAllowed, TooLarge
from foremind.domain.policy import Policy, policy_for
from foremind.domain.relationship import Relationship
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.storable_text import check_storable
from foremind.gateway.live_settings import LiveSettings
from foremind.memory.correct import Corrector
from foremind.memory.erasure.eraser import Eraser
from foremind.memory.import_relationship import RelationshipImporter
from foremind.memory.manual_edits import ManualEditor, RecordRemover
from foremind.runtime.fair_queue import ConnectionQueue
from foremind.runtime.services import RuntimeServices
from foremind.storage.stores import Stores
from foremind.storage.transfer_store import TransferStore
from foremind.typeahead.context_builder import ContextServices

MAX_ID = 2**62
MAX_JSON_BYTES = 200_000  # exports and documents have limits of their own

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class EditingServices:
    """What changes and erases stored memories and records on request."""

    eraser: Eraser
    corrector: Corrector
    editor: ManualEditor
    remover: RecordRemover


@dataclass(frozen=True, slots=True)
class TransferServices:
    """What exports and imports a relationship."""

    store: TransferStore
    exports: SpooledResponses
    importer: RelationshipImporter


@dataclass(frozen=True, slots=True)
class RelationshipServices:
    """The services of the routes of relationships."""

    runtime: RuntimeServices
    authenticator: RequestAuthenticator
    stores: Stores
    live_settings: LiveSettings
    context: ContextServices
    editing: EditingServices
    transfer: TransferServices
    background_worker: BackgroundWorker
    #: Where searches of programs wait for each other, so that they take little from typing.
    searches: ConnectionQueue


@dataclass(frozen=True, slots=True)
class ResolvedRelationship:
    """A relationship that the principal may access.

    `companion` has the settings in force for the relationship, `base_companion` its own.
    """

    principal: Principal
    relationship: Relationship
    companion: Companion
    base_companion: Companion
    policy: Policy

    @property
    def names(self) -> tuple[str, str]:
        """The names of the user and the companion."""
        return self.relationship.user_name, self.companion.name


async def resolve_relationship(
    services: RelationshipServices, request: Request, principal: Principal
) -> ResolvedRelationship:
    """Return the relationship in a request's path, checking that the principal may access it.

    Access to another user's relationship is written to its audit trail.

    Raises:
        NotAllowed: the token does not allow its companion.
        NotFound: it does not exist, or is another user's.
    """
    id_ = parse_number(request.path_params["id"], "id", 0, MAX_ID)
    relationship = await services.stores.relationships.find(id_, principal.effective_user_id)
    if not principal.may_open(relationship.companion):
        raise NotAllowed("id: the token does not allow this companion", param="id")
    resource = "".join(request.url.path.split("/")[4:5])
    action = "read" if request.method in ("GET", "HEAD") else "change"
    await audit_foreign_access(services, principal, id_, action, resource)
    return await with_settings(services, principal, relationship)


async def with_settings(
    services: RelationshipServices, principal: Principal, relationship: Relationship
) -> ResolvedRelationship:
    """Return a relationship that a principal may access with the settings in force for it."""
    base_companion = await services.stores.companions.find(relationship.companion)
    settings = effective_settings(
        base_companion.settings, relationship.settings, services.runtime.settings
    )
    return ResolvedRelationship(
        principal,
        relationship,
        replace(base_companion, settings=settings),
        base_companion,
        policy_for(settings, services.runtime.settings),
    )


async def audit_foreign_access(
    services: RelationshipServices,
    principal: Principal,
    relationship_id: int,
    action: str,
    resource: str,
) -> None:
    """Write an access to the relationship's audit trail, unless its own user made it."""
    if principal.effective_user_id != principal.user_id:
        now = services.runtime.clock.now()
        await services.stores.records.add_audit_entry(
            relationship_id, principal.user_id, action, resource, now
        )


def header_text(request: Request, name: str) -> str | None:
    """Return a header, percent-encoded UTF-8 as front ends send names; None without it.

    Raises:
        InvalidMessage: it came twice, or is not text that can be stored.
    """
    values = request.headers.getlist(name)
    if not values:
        return None
    if len(values) > 1:
        raise InvalidMessage(f"{name}: expected a single header", param=name)
    text = decoded(values[0].encode("latin-1"), name)
    check_storable(text, name)
    return text


def decoded(raw: bytes, name: str) -> str:
    """Return percent-encoded text.

    Raises:
        InvalidMessage: it is not UTF-8: what replaces the bytes would stand for many texts.
    """
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidMessage(f"{name}: expected text in UTF-8", param=name) from None


def parse_number(text: str, name: str, minimum: int, maximum: int) -> int:
    """Parse a number in a path or query.

    Raises:
        InvalidMessage: it is not a number, or out of range.
    """
    # The length first: int() rejects thousands of digits with another error.
    numeric = text.isascii() and text.isdigit() and len(text) <= len(str(maximum))
    if not numeric or not minimum <= int(text) <= maximum:
        raise InvalidMessage(f"{name}: expected a number from {minimum} to {maximum}", param=name)
    return int(text)


async def read_json(
    request: Request,
    shape: type[Shape],
    max_bytes: int = MAX_JSON_BYTES,
    check: Check = check_storable,
) -> Shape:
    """Read a JSON body, decode it as `shape` and check its values.

    Raises:
        InvalidMessage: it is not valid JSON, or a field is invalid.
        TooLarge: it exceeds `max_bytes`.
    """
    return await decode_json(await read_bytes(request, max_bytes), shape, check)


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """Read a body of at most `max_bytes`.

    Raises:
        TooLarge: it is larger.
    """
    too_large = TooLarge(f"body: expected at most {max_bytes} bytes", param="body")
    content_length = request.headers.get("content-length", "0")
    if len(content_length) > len(str(max_bytes)) or int(content_length) > max_bytes:
        request.state.connection.count_refused("body_size")
        raise too_large
    return await receive_body(request, max_bytes, too_large)


_DEFAULT_PAGE, _MAX_PAGE = 100, 1000  # elements of a page


def page_parameters(request: Request) -> tuple[int, int]:
    """Parse the query parameters `after` and `limit`."""
    after = parse_number(request.query_params.get("after", "0"), "after", 0, MAX_ID)
    limit = request.query_params.get("limit", str(_DEFAULT_PAGE))
    return after, parse_number(limit, "limit", 1, _MAX_PAGE)


def page_body(name: str, page: list[Any], limit: int) -> dict[str, object]:
    """Return the body of a page: its elements, and the cursor of the next page or None."""
    return {name: page, "next_after": page[-1].id if len(page) == limit else None}
