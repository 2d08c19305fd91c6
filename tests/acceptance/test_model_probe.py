"""A model server is asked what it is, and one that is found on this machine is offered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fair_transport import listening
from foremind.llm import model_probe
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.processes.server_process import free_port
from tests.acceptance.demo import enter
from tests.conftest import PATIENCE, StartServer, eventually_async

# As Ollama 0.12 answers them, in server/routes.go.
_ANSWERS: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [{"id": "small:latest", "owned_by": "library"}]},
    "/api/version": {"version": "0.12.6"},
    "/api/tags": {"models": [{"name": "small:latest", "model": "small:latest"}]},
    "/api/ps": {"models": [{"name": "small:latest", "context_length": 4096}]},
    "/api/show": {"capabilities": ["completion", "thinking"]},
}


@asynccontextmanager
async def answering(answers: dict[str, Any], asked: list[str]) -> AsyncIterator[int]:
    """Run a model server that answers nothing but a probe; yield its port."""

    async def answer(request: Request) -> Response:
        asked.append(request.url.path)
        known = answers.get(request.url.path)
        return JSONResponse(known or {"error": "not found"}, 200 if known else 404)

    app = Starlette()
    app.add_route("/{path:path}", answer, methods=["GET", "POST"])
    async with listening(app) as port:
        yield port


async def _get(port: int, path: str) -> Any:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return (await http.get(f"http://127.0.0.1:{port}{path}")).json()


async def test_what_the_model_server_says_is_shown(start: StartServer) -> None:
    """A context that is too short makes the server degraded, which still serves."""
    async with answering(_ANSWERS, []) as port:
        server = await start(llm_url=f"http://127.0.0.1:{port}/v1", llm_model="small")

        async def degraded() -> bool:
            ready = await _get(server.port, "/readyz")
            return "reads 4096 tokens" in ready.get("language_model", "")

        await eventually_async(degraded)
        ready = await _get(server.port, "/readyz")
        assert ready["status"] == "ok"
        assert ready["language_model"].startswith("degraded: Ollama 0.12.6 reads 4096 tokens")
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            url, remote = f"http://127.0.0.1:{server.port}/readyz", {"x-forwarded-for": "192.0.2.1"}
            unsaid = (await http.get(url, headers=remote)).json()
        assert (unsaid["status"], unsaid["language_model"]) == ("ok", "degraded: see the log")
        shown = await _get(server.port, "/v1/admin/models?user=owner")
        (model,) = shown["models"]
        assert model["facts"] == {
            "program": "Ollama 0.12.6",
            "models": ["small:latest"],
            "context_tokens": 4096,
            "thinks": True,
        }
        assert len(model["problems"]) == 1
        assert shown["found"] == []


async def test_a_companion_that_changes_is_probed_at_once(start: StartServer) -> None:
    """Not only once a minute: the clock stands still."""
    async with answering(_ANSWERS, []) as port:
        server = await start(ManualClock())
        model = {"llm_url": f"http://127.0.0.1:{port}/v1", "llm_model": "small"}
        changed = {"name": "Wren", "persona": "You are Wren.", "settings": model}
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            url = f"http://127.0.0.1:{server.port}/v1/admin/companions/wren?user=owner"
            (await http.put(url, json=changed)).raise_for_status()

        async def is_known() -> bool:
            ready = await _get(server.port, "/readyz")
            return "reads 4096 tokens" in ready.get("language_model", "")

        await eventually_async(is_known)


async def test_an_unreachable_server_is_named_to_operators_only(start: StartServer) -> None:
    """As degraded; it may come back."""
    server = await start(llm_url=f"http://127.0.0.1:{free_port()}/v1")
    shown = await _get(server.port, "/v1/admin/models?user=owner")
    (problem,) = shown["models"][0]["problems"]
    assert "cannot be reached. Check FOREMIND_LLM_URL." in problem


async def test_servers_on_this_machine_are_offered_and_not_used(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked of them but what they have."""
    asked: list[str] = []
    async with answering(_ANSWERS, asked) as port:
        usual = {"Ollama": port, "LM Studio": free_port(), "llama.cpp": port}
        monkeypatch.setattr(model_probe, "_USUAL_PORTS", usual)
        server = await start()
        shown = await _get(server.port, "/v1/admin/models?user=owner")
        assert shown == {
            "models": [],
            "found": [
                {
                    "program": "Ollama 0.12.6",
                    "url": f"http://127.0.0.1:{port}/v1",
                    "models": ["small:latest"],
                }
            ],
        }
        client = await server.session()
        await client.send("Hello")
        await client.expect("response.done")
    assert not [path for path in asked if "completions" in path]
    assert "language_model" not in await _get(server.port, "/readyz")


async def test_the_page_offers_them(
    start: StartServer,
    page: Page,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Above the conversation."""
    async with answering(_ANSWERS, []) as port:
        usual = {"Ollama": port, "LM Studio": free_port(), "llama.cpp": free_port()}
        monkeypatch.setattr(model_probe, "_USUAL_PORTS", usual)
        await enter(page, await start())
        offer = f"Ollama 0.12.6 was found on this machine. To use it, enter http://127.0.0.1:{port}"
        await expect(page.locator("#notice")).to_contain_text(offer)
