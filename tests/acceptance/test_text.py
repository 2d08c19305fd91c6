"""Text is stored exactly as given, or refused with an error that names the field."""

import json
from typing import Any

import httpx2
import pytest

from foremind.text.folding import visible
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import FIRST_RELATIONSHIP, PATIENCE, StartServer, owner_of

TEXTS = {
    "right to left override": "I promise \u202egnihtemos\u202c to Ana",
    "isolates": "I promise \u2067שלום\u2069 to Ana",
    "zalgo": "I pro\u0301\u0302\u0303\u0304mise H\u0334\u0322\u031b\u0352e comes, I promise" * 3,
    "emoji": "I promise " + "👩‍👩‍👧‍👦" * 1100,
    "line separators": "I promise one\u2028two\u2029three\x85four\x0bfive\x0csix",
    "controls": "I promise \x01\x02\x1b[31mred\x1b[0m\x7f",
    "noncharacters": "I promise \ufffe\uffff\U0010ffff",
    "markup": "I promise <script>alert(1)</script>&lt;b&gt;",
    "byte order mark": "\ufeffI promise to remember",
    "null by another name": "I promise \\u0000 and %00 and NULL; DROP TABLE turns; --",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_text_is_returned_exactly_as_given(start: StartServer, text: str) -> None:
    """In turns, memories, exports and contexts; in prompts without what is invisible."""
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url, pause_ms=50)
        client = await server.session()
        await client.send(text)
        events = await client.expect_all("response.done", "memory.stored")
        assert events["memory.stored"]["stored"]
        assert model.script.player_requests[-1]["messages"][-1]["content"].endswith(visible(text))
        await client.draft("What did I promise to Ana, one two, red, alert, remember, turns?")
        recalled = await client.expect("context.ready")
        reconnected = await server.connect()
        opened = await reconnected.open_session("wren", user_id="ana", name="Ana")
        exported = await _get(server.port, "export")
    assert [memory["content"] for memory in recalled["memories"][:1]] == [text]
    assert opened["turns"][0]["text"] == text
    assert exported["turns"][0]["text"] == text
    assert await owner_of(server.app.core).fetchval("SELECT content FROM memories") == text


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ('{"type": "message.send", "id": "m", "text": "a\\u0000b"}', "text"),
        ('{"type": "message.send", "id": "m\\u0000", "text": "ab"}', "id"),
        ('{"type": "message.send", "id": "m", "text": "a\\ud800b"}', "text"),
        ('{"type": "message.send", "id": "m", "text": "' + "x" * 8001 + '"}', "text"),
        ('{"type": "draft.update", "text": "a\\u0000b"}', "text"),
        ('{"type": "message.send", "id": "m", "text": " \\n\\u2003"}', "text"),
    ],
)
async def test_text_that_cannot_be_stored_is_refused(
    start: StartServer, frame: str, param: str | None
) -> None:
    """NUL, lone surrogates, too long, blank; the session continues."""
    server = await start()
    client = await server.session()
    await client.send_raw(frame)
    error = (await client.expect("error"))["error"]
    assert (error["param"], error["retryable"]) == (param, False)
    await client.send("I am still here", "m2")
    assert (await client.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/records", {"layer": "topics", "content": "a", "title": "a\0b"}, "title"),
        ("POST", "/records", {"layer": "topics", "content": "a", "refs": ["a\0"]}, "refs[0]"),
        ("PATCH", "/memories/1", {"content": "a\0b"}, "content"),
        ("PATCH", "/records/1", {"content": "a", "revision": 2**40}, "revision"),
        ("GET", "/context?draft=a%00b", None, "draft"),
        ("GET", "/export?user=ana%00", None, "user"),
        ("GET", f"/export?user={'x' * 129}", None, "user"),
        ("DELETE", "/memories?about=a%00b", None, "about"),
    ],
)
async def test_text_that_cannot_be_stored_is_refused_over_http(
    start: StartServer, method: str, path: str, body: object, param: str
) -> None:
    """In bodies, lists, query parameters, and numbers that exceed their column."""
    server = await start()
    client = await server.session()
    await client.send("I promise to remember the red door")
    await client.expect_all("response.done", "memory.stored")
    url = f"http://127.0.0.1:{server.port}/v1/relationships/{FIRST_RELATIONSHIP}{path}"
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url += "" if "user=" in url else "&user=ana" if "?" in url else "?user=ana"
        response = await http.request(method, url, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def _get(port: int, page: str) -> Any:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.get(
            f"http://127.0.0.1:{port}/v1/relationships/{FIRST_RELATIONSHIP}/{page}",
            params={"user": "ana"},
        )
    return json.loads(response.text)
