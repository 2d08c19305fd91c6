"""Serves the memory tools by the Model Context Protocol, through its SDK.

Nothing else imports the SDK: loading it takes a second, and only `foremind[mcp]` installs it. Each
request stands alone, as its answer does: no sessions, no streams, nothing between requests.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import mcp.types
import msgspec
import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from foremind import __version__
from foremind.api.dependencies import MAX_JSON_BYTES
from foremind.api.mcp_tools import TOOLS, MemoryTool, ToolServices
from foremind.api.responses import error_body
from foremind.auth.principal import Principal
from foremind.domain.errors import ForemindError, InvalidMessage
from foremind.runtime.supervision import begin, stop

_INSTRUCTIONS = (
    "What companions remember of players. Every tool is about one player and one companion, which "
    "its arguments name."
)
_tools = {tool.name: tool for tool in TOOLS}

_log = structlog.get_logger("foremind.api")


class McpServer:
    """Answers the messages of MCP clients."""

    def __init__(self, services: ToolServices) -> None:
        self._services = services
        server = Server(
            "foremind",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        # Hosts and origins are checked before any route is reached, by `origin_guard`.
        self._manager = StreamableHTTPSessionManager(
            server, stateless=True, json_response=True, max_request_body_size=MAX_JSON_BYTES
        )
        # It may quote what clients send.
        logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Serve for the length of the block."""
        ready = asyncio.Event()
        task = begin(self._run(ready), "mcp-server")
        await ready.wait()
        try:
            yield self
        finally:
            await stop(task)

    async def _run(self, ready: asyncio.Event) -> None:
        """Keep the SDK running, which must be entered and left by one task."""
        try:
            async with self._manager.run():
                ready.set()
                await asyncio.Event().wait()
        finally:
            ready.set()  # if it failed, so does every request, and the failure is logged

    async def answer(self, request: Request, caller: Principal | None, body: bytes) -> Response:
        """Return the answer to a message, whose body has been read.

        Args:
            caller: who sent it, None in open mode.
        """
        request.state.mcp_caller = caller
        status, headers, parts = 500, [], []
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return messages.pop() if messages else await request.receive()

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
            else:
                parts.append(message.get("body", b""))

        await self._manager.handle_request(request.scope, receive, send)
        response = Response(b"".join(parts), status)
        response.raw_headers += [
            header for header in headers if header[0].lower() != b"content-length"
        ]
        return response

    async def _list_tools(
        self, _: ServerRequestContext[Any], __: mcp.types.PaginatedRequestParams | None
    ) -> mcp.types.ListToolsResult:
        return mcp.types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def _call_tool(
        self, context: ServerRequestContext[Any], call: mcp.types.CallToolRequestParams
    ) -> mcp.types.CallToolResult:
        authenticator = self._services.relationships.authenticator
        assert context.request is not None
        caller: Principal | None = context.request.state.mcp_caller
        try:
            tool = _tools.get(call.name)
            if tool is None:
                raise InvalidMessage(f"name: expected one of {', '.join(_tools)}", param="name")
            act_for = partial(authenticator.strict_player, caller)
            return _result(await tool.call(self._services, act_for, call.arguments))
        except ForemindError as error:
            if error.kind == ForemindError.kind:
                _log.error("tool.failed", tool=call.name, code=error.code)
            return _result(error_body(error), failed=True)
        except Exception as error:  # a bug: the client gets no details
            _log.error("tool.failed", tool=call.name, reason=type(error).__name__)
            return _result(error_body(ForemindError("Internal server error.")), failed=True)


def _described(tool: MemoryTool) -> mcp.types.Tool:
    return mcp.types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=mcp.types.ToolAnnotations(
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            open_world_hint=False,
        ),
    )


def _result(content: object, *, failed: bool = False) -> mcp.types.CallToolResult:
    """Return a result as a value, and as text for clients that know only that."""
    encoded = msgspec.json.encode(content)
    return mcp.types.CallToolResult(
        content=[mcp.types.TextContent(type="text", text=encoded.decode())],
        structured_content=msgspec.json.decode(encoded),
        is_error=failed,
    )
