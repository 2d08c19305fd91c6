"""Character cards over HTTP and through the socket: given back as they came, and in the prompt."""

import json
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from foremind.cards.card_fields import SYSTEM_PROMPT
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import scripted_model
from tests.acceptance.world import World, world
from tests.conftest import PATIENCE, RunningServer, StartServer
from tests.unit.cards.sample_cards import V1, V2, V3, charx, document, png, text_chunk

NOTES = "NOTES-FOR-READERS"


async def call(
    server: RunningServer, method: str, path: str, body: bytes | None = None, **headers: str
) -> httpx2.Response:
    """Send an operator's request."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.request(
            method,
            f"http://127.0.0.1:{server.port}/v1/admin/companions{path}",
            params=httpx2.QueryParams(path.partition("?")[2]).set("user", "operator"),
            content=body,
            headers=named,
        )


async def put_card(server: RunningServer, file: bytes, slug: str = "wren") -> Any:
    """Give a companion a card; return the companion."""
    response = await call(server, "PUT", f"/{quote(slug)}/card", file)
    assert response.status_code == 200, response.text
    return response.json()


async def system_prompt(w: World, draft: str = "Hello") -> str:
    """The first message of the prompt for a draft."""
    return str((await w.context(draft))["messages"][0]["content"])


@pytest.mark.parametrize(("data", "version"), [(V2, 2), (V3, 3)], ids=["V2", "V3"])
async def test_a_card_is_given_back_as_it_came(
    start: StartServer, data: dict[str, Any], version: int
) -> None:
    """In every format, from every format: `data` is equal, unknown fields included."""
    server = await start()
    card = document(data, version)
    files = {
        "application/json": card,
        "image/png": png(text_chunk("chara", card)),
        "image/apng": png(text_chunk("ccv3", card)),
        "application/zip": charx({"card.json": card}),
        "application/octet-stream": card,
    }
    for media_type, file in files.items():
        stored = await call(server, "PUT", "/灯台/card", file, content_type=media_type)
        assert (stored.status_code, stored.json()["name"]) == (200, "Mara"), stored.text
        given = await call(server, "GET", "/灯台/card")
        assert given.json() == {
            "spec": f"chara_card_v{version}", "spec_version": f"{version}.0", "data": data
        }  # fmt: skip
    for card_format, media_type in (("png", "image/png"), ("charx", "application/zip")):
        given = await call(server, "GET", f"/灯台/card?as={card_format}")
        assert given.headers["content-type"] == media_type
        assert quote(f"灯台.{card_format}") in given.headers["content-disposition"]
        await put_card(server, given.content, "again")
        assert (await call(server, "GET", "/again/card")).json()["data"] == data


async def test_the_prompt_is_made_of_the_card(start: StartServer) -> None:
    """With names for macros, the greeting as the first line, and instructions at the end."""
    async with world(start, model=False) as w:
        await put_card(w.server, document(V3, 3))
        await w.talk()
        messages = (await w.context("Is there tea?"))["messages"]
        head = (
            f"{SYSTEM_PROMPT} Keep it short.\n\n{{{{char}}}} keeps a lighthouse.\n\n"
            "Personality of {{char}}: dry, patient\n\nScenario: {{user}} has come in from a storm."
            "\n\nHow {{char}} talks, in examples:\n\n"
            "{{user}}: Is it far?\n{{char}}: Everything is far."
        )
        assert messages[0]["content"].startswith(
            head.replace("{{char}}", "Mar").replace("{{user}}", "Ana")
        )
        assert messages[2] == {
            "role": "assistant", "content": "*She looks up.* You are wet, Ana."
        }  # fmt: skip
        assert messages[-1]["content"].endswith(
            "<instructions>\nNever mention the sea monster.\n</instructions>\n\nIs there tea?"
        )
        assert NOTES not in json.dumps(messages)


async def test_the_model_is_given_what_the_view_shows(start: StartServer) -> None:
    """Once the conversation goes on, too; notes for readers never reach it."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="off")
        await put_card(server, document(V3, 3))
        client = await server.connect()
        await client.open_session("wren", user_id="ana", name="Ana")
        for text in ("Is there tea?", "And bread?"):
            await client.send(text)
            await client.expect_all("response.done", "memory.stored")
            messages = model.script.player_requests[-1]["messages"]
            assert messages[2]["content"] == "*She looks up.* You are wet, Ana."
            assert messages[-1]["content"].count("Never mention the sea monster.") == 1
        assert NOTES not in json.dumps(model.script.player_requests)


async def test_a_session_chooses_its_greeting(start: StartServer) -> None:
    """By number; it stays with the session, and another that is not there is refused."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="off")
        await put_card(server, document(V3, 3))
        client, opened = await greeted(server, 1)
        assert opened["companion"] == {
            "slug": "wren", "name": "Mara", "greeting": "Again you, Ana?", "greetings": 3
        }  # fmt: skip
        await client.send("Me again")
        await client.expect_all("response.done", "memory.stored")
        assert model.script.player_requests[-1]["messages"][2]["content"] == "Again you, Ana?"
        resume = (opened["session_id"], opened["seq"])
        another = await server.connect()
        resumed = await another.open_session("wren", user_id="ana", name="Ana", resume=resume)
        assert resumed["companion"]["greeting"] == "Again you, Ana?"
        third = await server.connect()
        changed = await third.open_session(
            "wren", user_id="ana", name="Ana", resume=resume, greeting=2
        )
        assert changed["companion"]["greeting"] == "The light is out."
        _, refused = await greeted(server, 3)
        assert (refused["error"]["code"], refused["error"]["param"]) == (
            "invalid_message", "greeting"
        )  # fmt: skip
        assert "from 0 to 2" in refused["error"]["message"]
        _, refused = await greeted(server, -1)
        assert refused["error"]["param"] == "greeting"


async def greeted(server: RunningServer, greeting: int) -> tuple[Client, Any]:
    """Open a session with a greeting; return the client and the answer."""
    client = await server.connect()
    return client, await client.open_session("wren", user_id="ana", name="Ana", greeting=greeting)


async def test_companions_are_listed_with_their_greetings_filled_in(start: StartServer) -> None:
    """Also where nobody is named, and with the nickname that the card gives."""
    server = await start()
    await put_card(server, document(V3 | {"first_mes": "{{char}} sees {{user}}."}, 3))
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/v1/companions"
        assert (await http.get(url)).json()[0]["greeting"] == "Mar sees you."
        assert (await http.get(url, params={"user": "ana"})).json()[0]["greeting"].startswith("Mar")


async def test_what_is_drawn_at_random_keeps_the_head_of_a_prompt(start: StartServer) -> None:
    """In the persona once a session; after the history anew with every turn."""
    texts = {
        "description": "Today {{char}} is {{random:a,b,c,d,e,f,g,h}}.",
        "post_history_instructions": "Roll {{roll:1000000}}.",
    }
    async with world(start, model=True) as w:
        await put_card(w.server, document(V2 | texts))
        await w.talk("One", "Two", "Three", "Four")
        assert w.model is not None
        prompts = [request["messages"] for request in w.model.script.player_requests]
        assert len(prompts) == 4
        assert len({prompt[0]["content"].partition("The player's")[0] for prompt in prompts}) == 1
        rolls = {
            prompt[-1]["content"].partition("Roll ")[2].partition(".")[0] for prompt in prompts
        }
        assert len(rolls) == 4


async def test_examples_fit_an_eighth_of_the_context(start: StartServer) -> None:
    """The first ones; further ones are left out."""
    examples = "".join(f"<START>\n{{{{char}}}}: {number} {'w ' * 150}" for number in range(20))
    async with world(start, model=False, context_tokens=8192) as w:
        await put_card(w.server, document(V2 | {"mes_example": examples}))
        await w.talk()
        shown = await system_prompt(w)
        assert "Mara: 0 w" in shown
        assert "Mara: 19 w" not in shown


async def test_a_card_leaves_the_settings(start: StartServer) -> None:
    """They are the operator's; and the same card again is no change."""
    server = await start()
    body = {"name": "Wren", "persona": "P.", "settings": {"pause_ms": 300}}
    await call(server, "PUT", "/wren", json.dumps(body).encode())
    stored = await put_card(server, document(V2))
    assert stored["settings"] == {"pause_ms": 300}
    assert (await put_card(server, document(V2)))["version"] == stored["version"]
    replaced = await put_card(server, document(V2 | {"tags": []}))
    assert replaced["version"] == stored["version"] + 1
    await call(server, "PUT", "/wren", json.dumps(body).encode())
    given = (await call(server, "GET", "/wren/card")).json()
    assert given["data"]["description"] == "P."
    assert "character_book" not in given["data"]


async def test_a_companion_without_a_card_gets_one(start: StartServer) -> None:
    """Made of its name, persona and greeting; nothing in its persona is a macro."""
    async with world(start, model=False) as w:
        body = {"name": "Wren", "persona": "You are {{char}}, <user>'s friend.", "greeting": "Hi."}
        await call(w.server, "PUT", "/wren", json.dumps(body).encode())
        given = (await call(w.server, "GET", "/wren/card")).json()
        assert given["spec"] == "chara_card_v2"
        assert given["data"]["description"] == body["persona"]
        assert given["data"]["first_mes"] == "Hi."
        await w.talk()
        assert (await system_prompt(w)).startswith(body["persona"])
        await put_card(w.server, json.dumps(given).encode())
        assert "You are Wren, Ana's friend." in await system_prompt(w)


async def test_what_is_mended_in_a_card_is_listed(start: StartServer) -> None:
    """In the answer; the card is given back mended. Reading alone stores nothing."""
    server = await start()
    wrong = {"name": "", "alternate_greetings": "Again you?", "character_book": []}
    file = png(text_chunk("ccv3", b"{"), text_chunk("chara", document(V2 | wrong)))
    stored = await put_card(server, file, "mara")
    assert (stored["slug"], stored["name"]) == ("mara", "mara")
    fields = ["card", "alternate_greetings", "character_book", "name"]
    assert [notice["field"] for notice in stored["notices"]] == fields
    assert all(notice["text"] for notice in stored["notices"])
    given = (await call(server, "GET", "/mara/card")).json()["data"]
    assert given == V2 | {
        "name": "mara", "alternate_greetings": ["Again you?"], "character_book": None
    }  # fmt: skip
    assert (await put_card(server, json.dumps({"data": given}).encode(), "mara"))["notices"] == []
    part = {"name": "Tom", "persona": "P.", "card": {"alternate_greetings": "Hm?"}}
    made = await call(server, "PUT", "/tom", json.dumps(part).encode())
    assert [notice["field"] for notice in made.json()["notices"]] == ["alternate_greetings"]
    read = await call(server, "POST", "/../cards?name=Señora Mara", file)
    assert (read.status_code, read.json()["slug"]) == (200, "señora-mara")
    assert read.json()["data"] == given | {"name": "Señora Mara"}
    slugs = [known["slug"] for known in (await call(server, "GET", "")).json()["companions"]]
    assert sorted(slugs) == ["mara", "tom", "wren"]


@pytest.mark.parametrize(
    ("file", "status", "param"),
    [
        (b"no card", 400, "card"),
        (document(V2 | {"description": "x" * 100_001}), 400, "data.description"),
        (b"[" * 1_000_000, 400, "card"),
        (png(), 400, "card"),
        (charx({"card.json": document(V2), "../../etc/cron.d/x": b""}), 400, "card"),
        (charx({"card.json": bytes(10_000_000)}), 400, "card"),
        (document(V2 | {"tags": ["x" * 2_000_000]}), 413, "card"),
        (
            document(V2 | {"character_book": {"entries": [{}] * 2_001}}), 400,
            "character_book.entries",
        ),
    ],
    ids=["text", "length", "nesting", "no text", "path", "zip", "large", "lorebook"],
)  # fmt: skip
async def test_bombs_change_nothing(
    start: StartServer, file: bytes, status: int, param: str
) -> None:
    """They are refused by the name of the field, and hold up nobody."""
    server = await start()
    response = await call(server, "PUT", "/wren/card", file)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)
    assert (await call(server, "GET", "")).json()["companions"][0]["name"] == "Wren"


async def test_other_formats_and_slugs_are_refused(start: StartServer) -> None:
    """With what was expected."""
    server = await start()
    unknown = await call(server, "GET", "/wren/card?as=webp")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "as")
    assert (await call(server, "GET", "/nobody/card")).status_code == 404
    wrong = await call(server, "PUT", "/a%20b/card", document(V1))
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "slug")


async def test_the_largest_card_holds_up_nobody(start: StartServer) -> None:
    """Stored, opened and given back; the fixture fails if the event loop is held."""
    server = await start()
    tags = [f"tag {number}" for number in range(100_000)]
    large = V3 | {"extensions": {"tags": tags}, "description": "{{char}} " * 10_000}
    file = png(text_chunk("ccv3", document(large, 3)))
    await put_card(server, file)
    opened = await (await server.connect()).open_session("wren", user_id="ana", name="Ana")
    assert opened["type"] == "session.opened"
    given = await call(server, "GET", "/wren/card?as=charx")
    assert given.status_code == 200


@pytest.mark.parametrize("greeting", ["x" * 90_000, "\n\u65e5" * 30_000, "{{char}}" * 400])
async def test_a_session_opens_with_as_much_of_a_greeting_as_fits_a_frame(
    start: StartServer, greeting: str
) -> None:
    """A card may have a longer one, or one that becomes longer."""
    server = await start()
    data = V3 | {"first_mes": greeting, "nickname": "n" * 200}
    await put_card(server, document(data, 3))
    client = await server.connect()
    opened = await client.open_session("wren", user_id="ana", name="Ana")
    size = len(json.dumps(opened, ensure_ascii=False, separators=(",", ":")).encode())
    assert 30_000 < size <= opened["limits"]["max_frame_bytes"]
    assert greeting.replace("{{char}}", "n" * 200).startswith(opened["companion"]["greeting"])
