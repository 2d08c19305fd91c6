"""Who asks for which relationship, and what every route about one needs."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from foremind.clock import Clock
from foremind.companions import Companion
from foremind.curation.by_hand import Editor
from foremind.curation.worker import Curation
from foremind.embedding.service import EmbeddingService
from foremind.errors import NOT_JSON, InvalidMessage, NotAllowed
from foremind.http.entrance import Entrance
from foremind.identity.authority import require
from foremind.identity.caller import Caller
from foremind.layers.held import HeldLayers
from foremind.layers.library import Library
from foremind.memory.correct import Corrector
from foremind.memory.forget import Forgetter
from foremind.memory.restore import Restorer
from foremind.policies import Policy, laid_over, policy_for
from foremind.settings import Settings
from foremind.storable import check_storable
from foremind.storage.companions import CompanionStore
from foremind.storage.record_store import RecordStore
from foremind.storage.relationships import Relationship, RelationshipStore
from foremind.storage.transfer import TransferStore
from foremind.storage.turns import TurnStore
from foremind.typeahead.prepare import Preparer

_MOST_BODY = 200_000  # bytes of a JSON body; exports and documents have limits of their own
_MOST_AT_ONCE = 16_384  # bytes that are looked through on the event loop: a millisecond or two

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class RelationshipServices:
    """What these routes need."""

    entrance: Entrance
    settings: Settings
    clock: Clock
    companions: CompanionStore
    relationships: RelationshipStore
    turns: TurnStore
    preparer: Preparer
    records: RecordStore
    held: HeldLayers
    library: Library
    curation: Curation
    embedder: EmbeddingService
    forgetter: Forgetter
    corrector: Corrector
    editor: Editor
    transfer: TransferStore
    restorer: Restorer


@dataclass(frozen=True, slots=True)
class Found:
    """A relationship that a caller may see; the companion's settings are those in force."""

    caller: Caller
    relationship: Relationship
    companion: Companion
    owner: Companion
    policy: Policy

    @property
    def names(self) -> tuple[str, str]:
        """The user's name and the companion's."""
        return self.relationship.user_name, self.companion.name


async def find(services: RelationshipServices, request: Request) -> Found:
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
    if caller.whose != caller.user_id:
        what = request.url.path.split("/")[4:5]
        await services.records.note(
            id_, caller.user_id, "read" if reads else "change", "".join(what), services.clock.now()
        )
    companion = replace(owner, settings=laid_over(owner.settings, relationship.settings))
    policy = policy_for(companion.settings, services.settings)
    return Found(caller, relationship, companion, owner, policy)


def number(text: str, name: str, least: int, most: int) -> int:
    """Read a number from a path or query.

    Raises:
        InvalidMessage: it is none, or out of bounds.
    """
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidMessage(f"{name}: expected a number from {least} to {most}", param=name)
    return int(text)


async def body_of(request: Request, shape: type[Shape], most: int = _MOST_BODY) -> Shape:
    """Read a JSON body of a shape.

    Raises:
        InvalidMessage: it is none, too large, or a field is wrong.
    """
    raw = await bytes_of(request, most)
    try:
        body = msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        message = str(error)
        param = message.rpartition("$.")[2].rstrip("`") if "$." in message else "body"
        raise InvalidMessage(f"{param}: {message}", param=param) from None
    except NOT_JSON as error:
        raise InvalidMessage(f"body: expected JSON: {error}", param="body") from None
    if len(raw) <= _MOST_AT_ONCE:
        check_storable(body)
    else:  # an import may hold a million fields, and others are to have their turn meanwhile
        await asyncio.to_thread(check_storable, body)
    return body


async def bytes_of(request: Request, most: int) -> bytes:
    """Read a body of at most so many bytes.

    Raises:
        InvalidMessage: it is larger.
    """
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > most:
            raise InvalidMessage(f"body: expected at most {most} bytes", param="body")
    return bytes(raw)


def page_of(request: Request, usual: int, most: int) -> tuple[int, int]:
    """Read `after` and `limit` of a request for a page."""
    after = number(request.query_params.get("after", "0"), "after", 0, 2**62)
    return after, number(request.query_params.get("limit", str(usual)), "limit", 1, most)


def paged(name: str, page: list[Any], limit: int) -> dict[str, object]:
    """Return a page, and what to ask for after it."""
    return {name: page, "next_after": page[-1].id if len(page) == limit else None}
