"""Starts the MCP server, if it is to run."""

from contextlib import AsyncExitStack

from foremind.api.dependencies import RelationshipServices
from foremind.api.mcp_routes import MessageAnswers
from foremind.api.mcp_tools import ChargeMessage, ToolServices
from foremind.auth.authority import Authority
from foremind.domain.errors import SetupError
from foremind.memory.remember import Rememberer


async def start_mcp_server(
    views: RelationshipServices,
    authority: Authority,
    rememberer: Rememberer,
    charge: ChargeMessage,
    stack: AsyncExitStack,
) -> MessageAnswers | None:
    """Start the MCP server on a stack; return None if it is off.

    Raises:
        SetupError: its SDK is not installed.
    """
    if not views.runtime.settings.mcp:
        return None
    try:
        from foremind.api.mcp_server import McpServer  # noqa: PLC0415 - takes a second
    except ModuleNotFoundError as error:
        raise SetupError(
            f"FOREMIND_MCP needs the module {error.name}: pip install 'foremind[mcp]'"
        ) from None
    server = McpServer(ToolServices(views, authority, rememberer, charge))
    return await stack.enter_async_context(server.running())
