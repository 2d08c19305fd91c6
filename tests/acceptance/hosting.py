"""A game server of tests: a world with characters, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from tests.conftest import PATIENCE, RunningServer


class Host:
    """A game server's requests on one world; `http` is for others."""

    def __init__(self, server: RunningServer, http: httpx2.AsyncClient, world: str) -> None:
        self.server = server
        self.world = world
        self.http = http

    async def request(
        self, method: str, path: str = "", json: Any = None, *, status: int = 200, query: Any = None
    ) -> Any:
        """Send a request on the world; return the body of the response."""
        path = f"/v1/worlds/{self.world}{path}"
        response = await self.http.request(method, path, json=json, params=query)
        while response.status_code == 429 != status:  # a fast machine
            await asyncio.sleep(response.json()["error"]["retry_after_s"])
            response = await self.http.request(method, path, json=json, params=query)
        assert response.status_code == status, response.text
        return response.json()

    async def scene(self, name: str, *, players: list[str], minds: list[str], **more: Any) -> None:
        """Set who is in a scene."""
        body = {"players": players, "minds": minds} | more
        await self.request("PUT", f"/scenes/{name}", body)

    async def report(self, *events: dict[str, Any]) -> list[Any]:
        """Report events."""
        body = await self.request("POST", "/events", {"events": events})
        stored: list[Any] = body["events"]
        return stored

    async def prompt(self, mind: str, draft: str = "", player: str = "") -> str:
        """Return what a mind's model would be given."""
        query = {"draft": draft} | ({"player": player} if player else {})
        body = await self.request("GET", f"/minds/{mind}/context", query=query)
        assert body["missing"] == {}
        return "\n".join(f"{said['role']}: {said['content']}" for said in body["messages"])


async def put_minds(server: RunningServer, *slugs: str, **settings: Any) -> None:
    """Create characters that have one mind for everybody in a world."""
    for slug in slugs:
        await server.app.core.stores.companions.put(
            CompanionFile(
                slug,
                slug.title(),
                f"You are {slug.title()}.",
                settings=CompanionSettings(**({"mind": "world"} | settings)),
            )
        )


@asynccontextmanager
async def hosting(server: RunningServer, *minds: str, world: str = "vale") -> AsyncIterator[Host]:
    """Create characters and a world, and host it."""
    await put_minds(server, *minds)
    url = f"http://127.0.0.1:{server.port}"
    limits = httpx2.Limits(keepalive_expiry=1.0)  # before the server closes it
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as http:
        host = Host(server, http, world)
        await host.request("PUT", json={"clock": {"time": "1203-05-01T12:00:00Z", "factor": 0}})
        yield host
