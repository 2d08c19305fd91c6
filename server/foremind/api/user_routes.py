"""Export and erasure of a user with all relationships."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import RelationshipServices
from foremind.api.operations import Operation
from foremind.api.responses import json_response
from foremind.auth.principal import Principal
from foremind.domain.errors import NotAllowed
from foremind.domain.export_file import Export
from foremind.domain.policy import overlay_settings
from foremind.domain.user import ExportedRevocation
from foremind.memory.erase import UserEraser, UserErasureReceipt
from foremind.storage.user_store import UserStore


class UserExport(msgspec.Struct, frozen=True):
    """Everything stored about a user, with every companion."""

    user: str
    name: str
    time_zone: str
    exported_at: datetime
    revocations: list[ExportedRevocation]
    relationships: list[Export]
    language: str | None = None
    format: Literal["foremind.user"] = "foremind.user"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class UserServices:
    """The services of these routes."""

    relationships: RelationshipServices
    users: UserStore
    eraser: UserEraser


class UserEndpoints:
    """Operations below `/v1/users`."""

    def __init__(self, services: UserServices) -> None:
        self._users = services.users
        self._eraser = services.eraser
        self._services = services.relationships

    @Operation("GET", "/v1/users/{id:path}/export", UserExport)
    async def export_user(self, request: Request, principal: Principal) -> Response:
        """Export a user.

        Returns everything stored about the user, with every companion, as one JSON file. Only for
        the user itself, with a token that is not restricted to some companions, or with the scope
        `admin`. The export is recorded in the audit trail of every relationship. A user may have
        two exports in flight.
        """
        user_id = _accessible_user(request, principal)
        user = await self._users.find(user_id)
        services = self._services
        now = services.runtime.clock.now()
        relationships = await services.stores.relationships.relationships_of_user(user.external_id)
        for relationship in relationships:
            await services.stores.records.add_audit_entry(
                relationship.id, principal.user_id, "export", "everything", now
            )
        revocations = await self._users.revocations(user.external_id)

        async def build() -> UserExport:
            exports = [
                await services.transfer.store.read(
                    relationship.id,
                    relationship.companion,
                    (relationship.user_name, relationship.time_zone, relationship.language),
                    overlay_settings(relationship.settings.operator, relationship.settings.user),
                    now,
                )
                for relationship in relationships
            ]
            return UserExport(
                user.external_id,
                user.name,
                user.time_zone,
                now,
                revocations,
                exports,
                user.language,
            )

        headers = {"content-disposition": f'attachment; filename="foremind-{now:%Y-%m-%d}.json"'}
        return await services.transfer.exports.respond(principal.user_id, build, headers)

    @Operation("DELETE", "/v1/users/{id:path}", UserErasureReceipt, scope="memory:write")
    async def erase_user(self, request: Request, principal: Principal) -> Response:
        """Erase a user.

        Permanently erases the user with every companion: relationships, sessions, turns, memories,
        records, settings, audit trails, id, name and time zone. Their sessions are closed with 4403
        in every process. Token revocations stay in force under a pseudonym. Only for the user
        itself, with a token that is not restricted to some companions, or with the scope `admin`.
        The erasure is recorded first: if the request is interrupted, the server finishes it. Until
        it has, the same request waits for it, and returns the receipt.
        """
        user_id = _accessible_user(request, principal)
        receipt = await self._eraser.erase(user_id, by_operator=principal.user_id != user_id)
        return json_response(receipt)


def _accessible_user(request: Request, principal: Principal) -> str:
    """Return the user in the path: the principal itself, or anybody for an admin.

    Raises:
        NotAllowed: the principal may not access this user.
    """
    user_id: str = request.path_params["id"]
    own_data = principal.user_id == user_id and principal.companions is None
    if not principal.admin and not own_data:
        raise NotAllowed("id: expected the token's own user, with all companions", param="id")
    return user_id
