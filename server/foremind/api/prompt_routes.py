"""How a line came about: the prompt of a reply as it was, why memories were in it, settings."""

from contextlib import suppress

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import (
    MAX_ID,
    RelationshipServices,
    audit_foreign_access,
    parse_number,
)
from foremind.api.operations import Operation
from foremind.api.responses import json_response
from foremind.auth.authority import require_scope
from foremind.auth.principal import Principal
from foremind.domain.actions import ACTION
from foremind.domain.errors import NotFound
from foremind.domain.turn import MAX_PROMPTS
from foremind.llm.prompt.kept_prompt import KeptPrompt


class PromptEndpoints:
    """Operations that tell what the language model was given for what it said."""

    def __init__(self, services: RelationshipServices) -> None:
        self._services = services

    @Operation("GET", "/v1/turns/{turn}/prompt", KeptPrompt)
    async def prompt_of_turn(self, request: Request, principal: Principal) -> Response:
        """Read what a reply was made of.

        Returns the prompt of a reply to the byte, as the language model was given it: its messages
        and tools, the memories in it with why each was recalled, and every setting that was in
        force. The turn is the reply, or the message that it answers. 404 also if its prompt is not
        kept: those of the last 50 replies with a companion are, until something with the companion
        is forgotten or has expired, and none that has what a front end sent and is not stored.
        """
        turn = parse_number(request.path_params["turn"], "turn", 1, MAX_ID)
        stores = self._services.stores
        relationships = await stores.relationships.relationships_of_user(
            principal.effective_user_id
        )
        for relationship in relationships:
            if not principal.may_open(relationship.companion):
                continue
            kept = await stores.turns.prompt(relationship.id, turn)
            if kept is not None:
                await audit_foreign_access(
                    self._services, principal, relationship.id, "read", "prompts"
                )
                return await self._answer(relationship.id, kept, "turn")
        raise NotFound("turn: expected the id of a turn", param="turn")

    @Operation(
        "GET",
        "/v1/worlds/{world}/events/{event:path}/prompt",
        KeptPrompt,
        scope="",
        caller="anyone",
    )
    async def prompt_of_event(self, request: Request, principal: Principal | None) -> Response:
        """Read what a line of a mind was made of.

        Returns for an event that a mind said or did what `GET /v1/turns/{turn}/prompt` returns for
        a reply. The world's host may read it and, of a mind that a character has of a player alone,
        that player. 404 also if the prompt is not kept: those of the last 50 lines of a mind are,
        until it forgets something.
        """
        name, event = request.path_params["world"], request.path_params["event"]
        player = None
        if principal is not None and not principal.hosts(name):
            require_scope(principal, "memory:read")
            player = principal.effective_user_id
        said = event.rpartition(ACTION)[0]
        lines = [event, said, f"{said}{ACTION}0"] if said else [event]
        worlds, found = self._services.stores.worlds, None
        with suppress(NotFound):  # who does not host worlds is not told which there are
            found = await worlds.prompt(await worlds.find(name), lines, player)
        if found is None:
            raise NotFound("event: expected what a mind said or did here lately", param="event")
        return await self._answer(*found, "event")

    async def _answer(self, relationship_id: int, kept: str, param: str) -> Response:
        """Return a prompt, with why its memories are significant.

        Raises:
            NotFound: it is not kept any more.
        """
        if not kept:
            raise NotFound(
                f"{param}: its prompt is not kept; those of the last {MAX_PROMPTS} replies are, "
                "until something is forgotten",
                param=param,
            )
        prompt = msgspec.json.decode(kept, type=KeptPrompt)
        ids = [int(memory.id) for memory in prompt.memories]
        reasons = await self._services.stores.relationships.reasons(relationship_id, ids)
        memories = [
            replace(memory, why=replace(memory.why, reasons=reasons.get(int(memory.id), ())))
            for memory in prompt.memories
        ]
        return json_response(replace(prompt, memories=memories))
