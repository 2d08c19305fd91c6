"""`POST /v1/mcp`: the door for clients of the Model Context Protocol, if it is open."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import MAX_JSON_BYTES, read_bytes
from foremind.api.json_bodies import decode_json
from foremind.api.operations import Operation
from foremind.auth.principal import Principal
from foremind.domain.errors import NotFound
from foremind.domain.storable_text import check_storable

if TYPE_CHECKING:
    from foremind.api.mcp_server import McpServer  # needs its SDK, which is an extra


class JsonRpcMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of JSON-RPC 2.0: a request with an `id`, or a notification without."""

    jsonrpc: Literal["2.0"]
    method: str | None = None
    id: Any = None  # text or a number, whose checks are the protocol's
    params: dict[str, msgspec.Raw] | None = None
    result: Any = None  # of an answer; `msgspec.Raw | None` would refuse all but null
    error: Any = None


class JsonRpcAnswer(msgspec.Struct, frozen=True):
    """An answer of JSON-RPC 2.0: a `result` or an `error`."""

    jsonrpc: Literal["2.0"]
    id: Any
    result: dict[str, msgspec.Raw] | None = None
    error: dict[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class McpServices:
    """The services of this route; no `server` if it is off."""

    server: "McpServer | None"


class McpEndpoint:
    """The operation of the MCP server."""

    def __init__(self, services: McpServices) -> None:
        self._services = services

    @Operation("POST", "/v1/mcp", JsonRpcAnswer, body=JsonRpcMessage, scope="", caller="player")
    async def handle(self, request: Request, caller: Principal | None) -> Response:
        """Call a memory tool.

        The Model Context Protocol over streamable HTTP, without sessions: a message is answered as
        JSON, a notification with 202. The tools `recall`, `remember`, `correct`, `forget` and
        `context` need the scopes `memory:read` or `memory:write`. 404 unless the server runs with
        `FOREMIND_MCP`.
        """
        request.state.connection.mark_identified()
        body = await read_bytes(request, MAX_JSON_BYTES)
        await decode_json(body, JsonRpcMessage, check_storable)
        if self._services.server is None:
            raise NotFound("path: the MCP server is off; FOREMIND_MCP turns it on", param="path")
        return await self._services.server.answer(request, caller, body)
