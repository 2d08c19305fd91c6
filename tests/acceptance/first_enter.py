"""Print which document parsers a start imports, and what the first session imports after it.

And, if its companion gets a model server of its own meanwhile, what that imports on the event loop.
"""

import asyncio
import json
import sys
import threading
from contextlib import AsyncExitStack
from typing import Any
from urllib.request import Request, urlopen

from foremind.app.configuration import load_settings
from foremind.app.server import serving
from foremind_client import Client, connect
from foremind_eval.doubles.model_server import scripted_model
from tests.conftest import PATIENCE


async def converse(client: Client) -> None:
    """Use everything on the path of a first message."""
    await client.open_session("wren", user_id="ana", name="Ana")
    await client.draft("Do you remember what I said about the harbour last winter?")
    await client.expect("context.ready")
    await client.send("I promise to meet my sister Ana at the harbour next Tuesday!")
    await client.expect_all("message.accepted", "response.done", "memory.stored")
    await client.send("When do I meet my sister?")
    await client.expect_all("message.accepted", "response.done")


class ImportsOnTheLoop:
    """Finds no modules, but records which are searched for by the thread of the event loop."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, *_: object) -> None:
        """Record a module that is not loaded yet."""
        if threading.current_thread() is threading.main_thread():
            self.names.append(name)

    def __enter__(self) -> "ImportsOnTheLoop":
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)


async def converse_with_another_model(client: Client, port: int, llm_url: str) -> None:
    """Give the companion a model server of its own, and send the next message."""
    companion: dict[str, Any] = {"name": "Wren", "persona": "P", "settings": {"llm_url": llm_url}}
    url = f"http://127.0.0.1:{port}/v1/admin/companions/wren?user=owner"
    headers = {"Content-Type": "application/json"}
    put = Request(url, json.dumps(companion).encode(), headers, method="PUT")
    # Not by the library of the server, which would have imported it then.
    (await asyncio.to_thread(urlopen, put, timeout=PATIENCE)).close()
    await client.send("And who tends its light?")
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
            if "offline" in sys.argv:
                model = await stack.enter_async_context(scripted_model())
                with ImportsOnTheLoop() as imports:
                    await converse_with_another_model(client, port, model.url)
                print("on the loop:", imports.names)


asyncio.run(main())
