"""Who asks for which relationship, and what every route about one needs."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from foremind.api.json_bodies import Check, decoded
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.spooled_bodies import SpooledResponses, received
from foremind.auth.authority import require
from foremind.auth.principal import Principal
from foremind.background.manual_edits import ManualEditor
from foremind.background.record_removal import RecordRemover
from foremind.background.worker import BackgroundWorker
from foremind.domain.announcements import SettingsChanged
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage, NotAllowed, TooLarge
from foremind.domain.policy import Policy, policy_for
from foremind.domain.relationship import Relationship
from foremind.domain.setting_levels import in_force
from foremind.domain.settings import Settings
from foremind.domain.storable_text import check_storable
from foremind.memory.correct import Corrector
from foremind.memory.erase import Eraser
from foremind.memory.import_relationship import RelationshipImporter
from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.storage.companion_store import CompanionStore
from foremind.storage.record_store import RecordStore
from foremind.storage.relationship_store import RelationshipStore
from foremind.storage.state_store import StateStore
from foremind.storage.transfer_store import TransferStore
from foremind.storage.turn_store import TurnStore
from foremind.typeahead.context_builder import ContextBuilder

_MOST_BODY = 200_000  # bytes of a JSON body; exports and documents have limits of their own

Shape = TypeVar("Shape")


class SettingsSource(Protocol):
    """What the open sessions of this process go by."""

    async def changed(self, announcement: SettingsChanged) -> None:
        """Read anew what was changed."""


@dataclass(frozen=True, slots=True)
class RelationshipServices:
    """What these routes need."""

    entrance: RequestAuthenticator
    settings: Settings
    clock: Clock
    companions: CompanionStore
    relationships: RelationshipStore
    turns: TurnStore
    states: StateStore
    preparer: ContextBuilder
    records: RecordStore
    library: Library
    curation: BackgroundWorker
    embedder: EmbeddingService
    forgetter: Eraser
    corrector: Corrector
    editor: ManualEditor
    remover: RecordRemover
    transfer: TransferStore
    exports: SpooledResponses
    restorer: RelationshipImporter
    current: SettingsSource


@dataclass(frozen=True, slots=True)
class ResolvedRelationship:
    """A relationship that a caller may see; the companion's settings are those in force."""

    caller: Principal
    relationship: Relationship
    companion: Companion
    owner: Companion
    policy: Policy

    @property
    def names(self) -> tuple[str, str]:
        """The user's name and the companion's."""
        return self.relationship.user_name, self.companion.name


async def find(services: RelationshipServices, request: Request) -> ResolvedRelationship:
    """Return the relationship of a request, which its caller may read, or change.

    Whoever looks at another user's is noted in the audit trail.

    Raises:
        NotAuthenticated, NotAllowed, NotFound: it is not this caller's, or not there.
    """
    caller = await services.entrance.caller(request)
    reads = request.method in ("GET", "HEAD")
    require(caller, "memory:read" if reads else "memory:write")
    id_ = number(request.path_params["id"], "id", 0, 2**62)
    relationship = await services.relationships.find(id_, caller.whose)
    if not caller.may_open(relationship.companion):
        raise NotAllowed("id: the token does not allow this companion", param="id")
    owner = await services.companions.find(relationship.companion)
    what = "".join(request.url.path.split("/")[4:5])
    await note_if_others(services, caller, id_, "read" if reads else "change", what)
    own = in_force(owner.settings, relationship.settings, services.settings)
    policy = policy_for(own, services.settings)
    return ResolvedRelationship(caller, relationship, replace(owner, settings=own), owner, policy)


async def note_if_others(
    services: RelationshipServices, caller: Principal, relationship_id: int, action: str, what: str
) -> None:
    """Note in the audit trail of a relationship what somebody but its user did with it."""
    if caller.whose != caller.user_id:
        now = services.clock.now()
        await services.records.note(relationship_id, caller.user_id, action, what, now)


def number(text: str, name: str, least: int, most: int) -> int:
    """Read a number from a path or query.

    Raises:
        InvalidMessage: it is none, or out of bounds.
    """
    # Python refuses to read thousands of digits at all.
    readable = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not readable or not least <= int(text) <= most:
        raise InvalidMessage(f"{name}: expected a number from {least} to {most}", param=name)
    return int(text)


async def body_of(
    request: Request,
    shape: type[Shape],
    most: int = _MOST_BODY,
    check: Check = check_storable,
) -> Shape:
    """Read a JSON body of a shape, and check everything in it.

    Raises:
        InvalidMessage: it is none, or a field is wrong.
        TooLarge: it has more than `most` bytes.
    """
    return await decoded(await bytes_of(request, most), shape, check)


async def bytes_of(request: Request, most: int) -> bytes:
    """Read a body of at most so many bytes.

    Raises:
        TooLarge: it has more.
    """
    too_large = TooLarge(f"body: expected at most {most} bytes", param="body")
    said = request.headers.get("content-length", "0")
    if len(said) > len(str(most)) or int(said) > most:
        request.state.connection.count_refused("body_size")
        raise too_large
    return await received(request, most, too_large)


def page_of(request: Request, usual: int, most: int) -> tuple[int, int]:
    """Read `after` and `limit` of a request for a page."""
    after = number(request.query_params.get("after", "0"), "after", 0, 2**62)
    return after, number(request.query_params.get("limit", str(usual)), "limit", 1, most)


def paged(name: str, page: list[Any], limit: int) -> dict[str, object]:
    """Return a page, and what to ask for after it."""
    return {name: page, "next_after": page[-1].id if len(page) == limit else None}
