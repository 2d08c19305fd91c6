"""A user as a whole: everything that is known as one file, and erased everywhere."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import RelationshipServices
from foremind.api.responses import json_response
from foremind.auth.authority import require
from foremind.auth.principal import Principal, Scope
from foremind.domain.errors import NotAllowed
from foremind.domain.export_file import Export
from foremind.domain.policy import laid_over
from foremind.domain.user import ExportedRevocation, User
from foremind.memory.user_erasure import UserEraser
from foremind.storage.user_store import UserStore


class UserExport(msgspec.Struct, frozen=True):
    """Everything that is known of a user, with every companion."""

    user: str
    name: str
    time_zone: str
    exported_at: datetime
    revocations: list[ExportedRevocation]
    relationships: list[Export]
    format: Literal["foremind.user"] = "foremind.user"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class UserServices:
    """What these routes need."""

    relationships: RelationshipServices
    users: UserStore
    eraser: UserEraser


def user_routes(services: UserServices) -> list[BaseRoute]:
    """Return the routes below `/v1/users`."""
    bonds = services.relationships

    async def whose(request: Request, scope: Scope) -> tuple[Principal, User]:
        """Return who asks, and for whom: for itself, or as an operator for anybody.

        Raises:
            NotAuthenticated, NotAllowed, NotFound: it may not, or nobody of that id is known.
        """
        caller = await bonds.entrance.caller(request)
        require(caller, scope)
        user_id = request.path_params["id"]
        if not caller.admin and (caller.user_id != user_id or caller.companions is not None):
            raise NotAllowed("id: expected the token's own user, with all companions", param="id")
        return caller, await services.users.find(user_id)

    async def export(request: Request) -> Response:
        caller, user = await whose(request, "memory:read")
        now = bonds.clock.now()
        found = await bonds.relationships.of_user(user.external_id)
        for each in found:
            await bonds.records.note(each.id, caller.user_id, "export", "everything", now)
        revocations = await services.users.revocations(user.external_id)

        async def written() -> UserExport:
            relationships = [
                await bonds.transfer.read(
                    each.id,
                    each.companion,
                    (each.user_name, each.time_zone),
                    laid_over(each.settings.operator, each.settings.user),
                    now,
                )
                for each in found
            ]
            return UserExport(
                user.external_id, user.name, user.time_zone, now, revocations, relationships
            )

        headers = {"content-disposition": f'attachment; filename="foremind-{now:%Y-%m-%d}.json"'}
        return await bonds.exports.answer(caller.user_id, written, headers)

    async def erase(request: Request) -> Response:
        caller, user = await whose(request, "memory:write")
        receipt = await services.eraser.erase(
            user.external_id, by_operator=caller.user_id != user.external_id
        )
        return json_response(receipt)

    return [
        Route("/v1/users/{id:path}/export", export),
        Route("/v1/users/{id:path}", erase, methods=["DELETE"]),
    ]
