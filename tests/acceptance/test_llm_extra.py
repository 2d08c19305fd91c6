"""Fields that an operator adds to the requests of a language model."""

from typing import Any

import httpx2
import pytest

from tests.acceptance.world import world
from tests.conftest import FIRST_RELATIONSHIP, PATIENCE, StartServer, eventually

_KWARGS = {"enable_thinking": False}
_EXTRA: dict[str, Any] = {
    "top_p": 0.9,
    "repetition_penalty": 1.1,
    "stop": ["Ana:"],
    "chat_template_kwargs": _KWARGS,
}


async def _put(port: int, extra: dict[str, Any]) -> httpx2.Response:
    companion = {"name": "Wren", "persona": "You are Wren.", "settings": {"llm_extra": extra}}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{port}/v1/admin/companions/wren?user=owner"
        return await http.put(url, json=companion)


async def test_they_are_in_every_request_of_the_server_and_the_companion(
    start: StartServer,
) -> None:
    """A companion's over the server's; what would bend JSON is in no background request."""
    async with world(start, model=True, llm_extra=_EXTRA, llm_ahead="prefill") as w:
        assert w.model is not None
        script = w.model.script
        assert (await _put(w.server.port, {"top_p": None, "min_p": 0.05})).status_code == 200
        client = await w.server.session()
        await client.draft("I was born in Oslo.")
        await eventually(lambda: bool(script.prefill_requests))
        await client.send("I was born in Oslo.", "m1")
        await client.expect_all("response.done", "memory.stored")
        w.relationship = FIRST_RELATIONSHIP
        await w.request("POST", "/status")
        await eventually(lambda: bool(script.background_requests))
    given = [script.player_requests[-1], script.prefill_requests[-1], script.background_requests[0]]
    names = [*_EXTRA, "min_p"]
    reply, prefill, background = ({n: r[n] for n in names if n in r} for r in given)
    everything = {name: value for name, value in _EXTRA.items() if name != "top_p"} | {
        "min_p": 0.05
    }
    assert reply == prefill == everything
    assert background == {"chat_template_kwargs": _KWARGS, "min_p": 0.05}


@pytest.mark.parametrize(
    "name", ["messages", "stream", "model", "max_tokens", "temperature", "n", "Stream", "tools", ""]
)
async def test_none_may_override_what_foremind_needs(start: StartServer, name: str) -> None:
    """The error names the field, and nothing is changed."""
    server = await start()
    answer = await _put(server.port, {"top_p": 0.9, name: 1})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == f"settings.llm_extra.{name}"
    assert "that Foremind does not set itself" in error["message"]
