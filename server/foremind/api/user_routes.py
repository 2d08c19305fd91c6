"""Export and erasure of a user with all relationships."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import RelationshipServices
from foremind.api.operations import Operation
from foremind.api.responses import json_response
from foremind.auth.principal import Principal
from foremind.domain.errors import NotAllowed
from foremind.domain.export_file import Export, PlayerInWorld, UserExport
from foremind.domain.relationship import Relationship
from foremind.memory.erasure.eraser import UserEraser, UserErasureReceipt
from foremind.storage.user_store import UserStore


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

        Returns everything stored about the user, with every companion, as one JSON file, and what
        the user witnessed as a player of worlds. Only for the user itself, with a token that is not
        restricted to some companions, or with the scope `admin`. The export is recorded in the
        audit trail of every relationship. A user may have two exports in flight.
        """
        user_id = _accessible_user(request, principal)
        services = self._services
        accounts = await services.stores.world_erasures.accounts_of_player(user_id)
        user = await self._users.get(user_id) if accounts else await self._users.find(user_id)
        now = services.runtime.clock.now()
        relationships = await services.stores.relationships.relationships_of_user(user_id)
        minds = {
            account: await services.stores.relationships.relationships_of_user(account.name)
            for account in accounts
        }
        for relationship in (*relationships, *chain.from_iterable(minds.values())):
            await services.stores.records.add_audit_entry(
                relationship.id, principal.user_id, "export", "everything", now
            )
        revocations = await self._users.revocations(user_id)

        async def exports_of(relationships: Sequence[Relationship]) -> list[Export]:
            return [
                await services.transfer.store.read(relationship, now)
                for relationship in relationships
            ]

        async def build() -> UserExport:
            return UserExport(
                user_id,
                user_id if user is None else user.name,
                "UTC" if user is None else user.time_zone,
                now,
                revocations,
                await exports_of(relationships),
                [
                    PlayerInWorld(
                        account.world,
                        await services.stores.world_erasures.witnessed_by(account),
                        await exports_of(known),
                    )
                    for account, known in minds.items()
                ],
                None if user is None else user.language,
            )

        headers = {"content-disposition": f'attachment; filename="foremind-{now:%Y-%m-%d}.json"'}
        return await services.transfer.exports.respond(principal.user_id, build, headers)

    @Operation("DELETE", "/v1/users/{id:path}", UserErasureReceipt, scope="memory:write")
    async def erase_user(self, request: Request, principal: Principal) -> Response:
        """Erase a user.

        Permanently erases the user with every companion: relationships, sessions, turns, memories,
        records, settings, audit trails, id, name and time zone. In worlds, every mind forgets what
        the user said, did or was told as a player. Their sessions are closed with 4403 in every
        process. Token revocations stay in force under a pseudonym. Only for the user
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
