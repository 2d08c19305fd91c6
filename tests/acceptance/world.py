"""A server with a clock and a model that tests control, and requests on behalf of one user."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx2

from foremind_client import Client
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    all_announcements_handled,
    owner_of,
    rereading,
)

A_DAY = 26 * 3600.0
_REREAD_S = 5.0  # far longer than reading takes


class World:
    """A server, a clock that the test advances, a scripted model or none, and the user Ana."""

    user = "ana"

    def __init__(
        self, server: RunningServer, clock: ManualClock, model: ScriptedModel | None
    ) -> None:
        self.server = server
        self.clock = clock
        self.model = model
        self.relationship = 0
        self.events: list[Any] = []

    async def talk(self, *texts: str, user: str = "ana", language: str | None = None) -> Client:
        """Send messages over one connection, waiting for each reply and ingest; keep the events."""
        client = await self.server.connect()
        opened = await client.open_session(
            "wren", user_id=user, name=user.title(), language=language
        )
        if user == "ana":
            self.relationship = int(opened["relationship_id"])
        for text in texts:
            await client.send(text)
            awaited = {"response.done", "memory.stored"}
            while awaited:
                self.events.append(await client.next_event())
                awaited.discard(self.events[-1]["type"])
            await self.clock.advance(20)
        await self.wait_until_idle()
        await client.send_raw({"type": "sync", "event_id": "sync"})
        while (event := await client.next_event())["type"] != "error":
            self.events.append(event)
        return client

    async def next_day(self) -> None:
        """Let the session expire, and wait until the background work that follows is done."""
        await self.clock.leap(A_DAY)
        await self.wait_until_idle()

    async def wait_until_idle(self) -> None:
        """Advance the clock until no background work is scheduled or running."""
        pool = owner_of(self.server.app.core)
        async with asyncio.timeout(PATIENCE):
            while True:
                now = self.clock.now()
                # What is gathered, ingested or backing off is due later.
                due_at = await pool.fetchval(
                    "SELECT least((SELECT min(due_at) FROM relationships), "
                    "(SELECT min(CASE WHEN lane = 'ingest' AND attempts = 0 THEN $1 "
                    "ELSE due_at END) FROM background_steps), "
                    "(SELECT min($1::timestamptz) FROM background_claims))",
                    now,
                )
                if due_at is None or due_at > now + timedelta(minutes=16):
                    break
                if due_at > now:
                    await self.clock.leap((due_at - now).total_seconds())
                await self.clock.advance(0.5)
                await asyncio.sleep(0.02)
        await all_announcements_handled(self.server)

    async def request(self, method: str, path: str, body: object = None) -> Any:
        """Send an HTTP request about the relationship; return the JSON of the response.

        What a change makes stale is read again in the background; wait for that, unless the test
        holds it up.
        """
        response = await self.response_to(method, path, body)
        assert response.status_code < 300, response.text
        if method != "GET":
            with suppress(TimeoutError):
                async with asyncio.timeout(_REREAD_S):
                    while rereading():
                        await asyncio.sleep(0.005)
        return response.json()

    async def response_to(self, method: str, path: str, body: object = None) -> httpx2.Response:
        """Send an HTTP request; return the response, also an error. Bytes are sent as they are."""
        return await self._send(method, f"/{self.relationship}{path}", body)

    async def import_file(self, exported: object, companion: str = "wren") -> httpx2.Response:
        """Import an export as the user's relationship with a companion; return the response."""
        return await self._send("POST", f"/import?companion={companion}", exported)

    async def _send(self, method: str, path: str, body: object) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            return await client.request(
                method,
                f"http://127.0.0.1:{self.server.port}/v1/relationships{path}",
                params=httpx2.QueryParams(path.partition("?")[2]).set("user", self.user),
                content=body if body is None or isinstance(body, bytes) else json.dumps(body),
            )

    async def context(self, draft: str) -> Any:
        """Return what the model would be given for a draft."""
        return await self.request("GET", f"/context?draft={quote(draft)}")

    async def lines(self, layer: str, draft: str = "And now?") -> str:
        """Return the lines of a layer for a draft, as one text."""
        return "\n".join((await self.context(draft))["layers"][layer]["lines"])

    async def records(self, layer: str, title: str = "") -> list[Any]:
        """Return the records of a layer whose titles start with `title`."""
        records = (await self.request("GET", f"/records?layer={layer}"))["records"]
        return [record for record in records if record["title"].startswith(title)]

    async def memories(self) -> dict[str, Any]:
        """Return the first page of memories by their content."""
        memories = (await self.request("GET", "/memories"))["memories"]
        return {memory["content"]: memory for memory in memories}

    async def audit(self) -> list[Any]:
        """Return the audit trail."""
        entries: list[Any] = (await self.request("GET", "/audit?limit=1000"))["audit"]
        return entries


@asynccontextmanager
async def world(start: StartServer, *, model: bool, **settings: object) -> AsyncIterator[World]:
    """Start a server with a scripted model, or without any."""
    clock = ManualClock()
    if not model:
        yield World(await start(clock=clock, **settings), clock, None)
        return
    async with scripted_model(Script(background=background_answer)) as scripted:
        server = await start(clock=clock, llm_url=scripted.url, **settings)
        yield World(server, clock, scripted)
