"""Print which document parsers a start imports, and what the first session imports after it."""

import asyncio
import sys
from contextlib import AsyncExitStack

from foremind.app.server import serving
from foremind.domain.settings.settings import load_settings
from foremind_client import Client, connect
from foremind_eval.doubles.model_server import scripted_model


async def converse(client: Client) -> None:
    """Use everything on the path of a first message."""
    await client.open_session("wren", user_id="ana", name="Ana")
    await client.draft("Do you remember what I said about the harbour last winter?")
    await client.expect("context.ready")
    await client.send("I promise to meet my sister Ana at the harbour next Tuesday!")
    await client.expect_all("message.accepted", "response.done", "memory.stored")
    await client.send("When do I meet my sister?")
    await client.expect_all("message.accepted", "response.done")


async def main() -> None:
    """Start a server and hold its first session."""
    async with AsyncExitStack() as stack:
        llm_settings: dict[str, str] = {}
        if "model" in sys.argv:
            llm_settings["llm_url"] = (await stack.enter_async_context(scripted_model())).url
        _, port = await stack.enter_async_context(serving(load_settings(port=0, **llm_settings)))
        ready = set(sys.modules)
        print("parsers:", sorted({"bs4", "pypdf"} & ready))
        async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
            await converse(client)
        print("loaded:", sorted(set(sys.modules) - ready))


asyncio.run(main())
