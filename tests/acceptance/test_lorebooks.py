"""Lorebooks through the socket: typing a key prepares its lore, and the prompt has it in place."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.test_message_path import type_text
from tests.acceptance.world import world
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually
from tests.unit.lore.test_silly_tavern import NEW

LIGHTHOUSE = {
    "id": 12, "name": "The lighthouse", "keys": ["lighthouse"], "enabled": True,
    "insertion_order": 1, "content": "{{char}} lit the lighthouse for {{user}}.",
}  # fmt: skip
LIT = "Wren lit the lighthouse for Ana."


def lore_entry(name: str, key: str, content: str, **fields: Any) -> dict[str, Any]:
    """An entry of a card."""
    required = {"enabled": True, "insertion_order": 5, "use_regex": False, "extensions": {}}
    return required | {"id": name, "keys": [key], "content": content} | fields


async def put_lorebook(server: RunningServer, entries: Sequence[Any], **fields: Any) -> None:
    """Give Wren a lorebook."""
    card = {"character_book": {"entries": entries, "extensions": {}} | fields}
    await server.app.core.stores.companions.put(
        CompanionFile("wren", "Wren", "You are Wren.", "Welcome to the cellar.", card=card)
    )


async def typed(client: Client, server: RunningServer, clock: ManualClock, text: str) -> Any:
    """Type a text, pause, and return its `context.ready`."""
    await type_text(client, server, text)
    await clock.advance(0.5)
    return await client.expect("context.ready")


async def sent(client: Client, text: str) -> dict[str, Any]:
    """Send a message; return what was received until its reply ended, by type."""
    await client.send(text)
    return await client.expect_all("message.accepted", "response.done", "memory.stored")


async def test_typing_a_key_prepares_its_lore(start: StartServer) -> None:
    """`context.ready` names the entry, Enter is a hit, and the prompt has the text, filled in."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="off", eager=False)
        await put_lorebook(server, [LIGHTHOUSE, lore_entry("x", "cellar", "The cellar is dry.")])
        client = await server.session()
        assert (await typed(client, server, clock, "Who lit the light"))["lore"] == []
        ready = await typed(client, server, clock, "Who lit the lighthouse?")
        assert ready["lore"] == [{"id": "12", "name": "The lighthouse"}]
        accepted = (await sent(client, "Who lit the lighthouse?"))["message.accepted"]
        assert accepted["context"] == "hit"
        messages = model.script.player_requests[-1]["messages"]
        assert LIT in messages[-1]["content"]
        assert "cellar" not in json.dumps(messages)
        assert model.script.player_requests[-1]["messages"][0]["content"].startswith("You are Wren")


async def test_an_entry_stays_for_as_many_messages_as_are_scanned(start: StartServer) -> None:
    """The draft included; a reply that mentions a key activates its entry for the next draft."""
    clock = ManualClock()
    async with scripted_model(Script(reply=lambda _: ["The ", "cellar", "."])) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="off", eager=False)
        entries = [LIGHTHOUSE, lore_entry("cellar", "cellar", "The cellar is dry.")]
        await put_lorebook(server, entries, scan_depth=3)
        client = await server.session()
        await sent(client, "The lighthouse")
        assert _ids(await typed(client, server, clock, "And then?")) == ["12", "cellar"]
        await sent(client, "And then?")
        assert _ids(await typed(client, server, clock, "Go on")) == ["cellar"]


async def test_a_context_from_before_a_reply_is_not_served_after_it(start: StartServer) -> None:
    """The reply activates more lore for the same draft, which is prepared again."""
    clock = ManualClock()
    release = asyncio.Event()
    script = Script(reply=lambda _: ["The lighthouse."], hold_before=release)
    async with scripted_model(script) as model:
        server = await start(clock, llm_url=model.url, llm_ahead="off", eager=False)
        await put_lorebook(server, [LIGHTHOUSE])
        client = await server.session()
        await client.send("Hello there")
        await client.expect("response.created")
        assert _ids(await typed(client, server, clock, "What stands on the cape?")) == []
        release.set()
        await client.expect("response.done")
        await client.send("What stands on the cape?")
        accepted = await client.expect("message.accepted")
        assert accepted["context"] != "hit"
        await client.expect("response.done")
        assert LIT in model.script.player_requests[-1]["messages"][-1]["content"]


async def test_a_prefilled_prompt_and_a_reply_made_ahead_have_the_lore(start: StartServer) -> None:
    """The reply that was made before Enter is the one that is sent."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock, llm_url=model.url, llm_ahead="reply", eager=False)
        await put_lorebook(server, [LIGHTHOUSE | {"position": "before_char"}])
        client = await server.session()
        await typed(client, server, clock, "Who lit the lighthouse?")
        await eventually(lambda: len(model.script.player_requests) == 1)
        accepted = (await sent(client, "Who lit the lighthouse?"))["message.accepted"]
        assert accepted["ahead"] == "reply"
        (request,) = model.script.player_requests
        assert request["messages"][0]["content"].startswith(f"{LIT}\n\nYou are Wren.")


async def test_positions_and_depths_are_where_the_card_says(start: StartServer) -> None:
    """Around the persona, in the history, and after the message; roles still alternate."""
    entries = [
        lore_entry("after", "sea", "After.", position="after_char"),
        lore_entry("before", "sea", "Before.", position="before_char"),
        lore_entry("constant", "", "Constant.", constant=True),
        lore_entry("0", "sea", "@@depth 0\nDepth 0."),
        lore_entry("0 user", "sea", "@@depth 0\n@@role user\nUser 0."),
        lore_entry("1", "sea", "@@depth 1\nDepth 1."),
        lore_entry("2", "sea", "@@depth 2\nDepth 2."),
        lore_entry("3 assistant", "sea", "@@depth 3\n@@role assistant\nSaid 3."),
        lore_entry("99", "sea", "@@depth 99\nDepth 99."),
        lore_entry("none", "sea", "Recalled."),
    ]
    async with world(start, model=True) as w:
        assert w.model is not None
        await put_lorebook(w.server, entries)
        client = await w.talk("Good morning", "Good day")
        await w.wait_until_idle()
        await sent(client, "The sea")
        system, *history, last = w.model.script.player_requests[-1]["messages"]
        assert system["content"].startswith("Before.\n\nYou are Wren.\n\nAfter.\n\nConstant.\n\n")
        assert [message["content"] for message in history] == [
            "<lore>\nDepth 99.\n</lore>\n\nGood morning",
            "Hello there.\n\nSaid 3.",
            "Good day\n\n<lore>\nDepth 2.\n</lore>",
            "Hello there.",
        ]
        assert last["content"].startswith("<lore>\nDepth 1.\n</lore>\n\n")
        assert last["content"].endswith(
            "<lore>\nRecalled.\n</lore>\n\nThe sea\n\n<lore>\nDepth 0.\n</lore>\n\nUser 0."
        )


@pytest.mark.parametrize("book", [None, {"entries": [LIGHTHOUSE]}], ids=["alone", "beside lore"])
async def test_a_note_of_sillytavern_stands_at_its_depth(
    start: StartServer, book: dict[str, Any] | None
) -> None:
    """Whether there is a lorebook or not; its depth is four if it says none."""
    for note, depth, role in (
        ({"prompt": "{{char}} speaks of the sea.", "depth": 1, "role": "user"}, 1, "user"),
        ({"prompt": "{{char}} speaks of the sea.", "role": "nobody"}, 4, "system"),
        ({"prompt": " ", "depth": 0, "role": "system"}, None, None),
    ):
        async with world(start, model=False) as w:
            path = f"http://127.0.0.1:{w.server.port}/v1/admin/companions/wren/card"
            data = {"name": "Wren", "description": "You are Wren.", "character_book": book}
            card = {"spec": "chara_card_v2", "data": data | {"extensions": {"depth_prompt": note}}}
            async with httpx2.AsyncClient(timeout=PATIENCE, params={"user": "ana"}) as http:
                stored = await http.put(path, json=card)
            assert (stored.status_code, stored.json()["notices"]) == (200, [])
            await w.talk("Hello")
            entries = (await w.context("Nothing"))["lore"]["entries"]
            shown = [(entry["text"], entry["depth"], entry["role"]) for entry in entries]
            assert shown == ([] if depth is None else [("Wren speaks of the sea.", depth, role)])


async def test_the_context_view_shows_lore_by_entry(start: StartServer) -> None:
    """What is active, what did not fit, and what cannot work."""
    entries = [
        LIGHTHOUSE,
        lore_entry("long", "lighthouse", "word " * 2_000, priority=9),
        lore_entry("bad", "(?=x)", "Never.", use_regex=True),
        lore_entry("deep", "", "@@depth 4\n@@role user\nDeep.", constant=True),
    ]
    async with world(start, model=False, context_tokens=8192) as w:
        await put_lorebook(w.server, entries)
        await w.talk("Hello")
        shown = await w.context("The lighthouse")
        assert shown["lore"]["entries"] == [
            {"id": "12", "name": "The lighthouse", "text": LIT,
             "tokens": shown["lore"]["entries"][0]["tokens"],
             "position": "recalled", "depth": 0, "role": "system"},
            {"id": "deep", "name": "deep", "text": "Deep.",
             "tokens": shown["lore"]["entries"][1]["tokens"],
             "position": "depth", "depth": 4, "role": "user"},
        ]  # fmt: skip
        assert shown["lore"]["tokens"] == sum(
            shown_entry["tokens"] for shown_entry in shown["lore"]["entries"]
        )
        assert shown["lore"]["left_out"] == ["long"]
        assert shown["lore"]["unusable"] == [{"id": "bad", "code": "pattern"}]
        assert LIT in shown["messages"][-1]["content"]
        assert (await w.context("Nothing"))["lore"]["left_out"] == []


async def test_a_world_of_silly_tavern_is_put_by_itself(start: StartServer) -> None:
    """It takes the place of the companion's lorebook; the answer names what is not supported."""
    world_file = {
        "entries": {
            "0": NEW | {"uid": 0, "key": ["lighthouse"], "content": LIGHTHOUSE["content"]},
            "1": NEW | {"uid": 1, "key": ["C++"], "content": "Signs.", "vectorized": True},
        }
    }
    async with world(start, model=False) as w:
        path = f"http://127.0.0.1:{w.server.port}/v1/admin"
        async with httpx2.AsyncClient(timeout=PATIENCE, params={"user": "ana"}) as http:
            read = await http.post(f"{path}/cards", json=world_file)
            assert (read.status_code, read.json()["slug"], read.json()["name"]) == (200, "", "")
            stored = await http.put(f"{path}/companions/wren/card", json=world_file)
            card = (await http.get(f"{path}/companions/wren/card")).json()["data"]
            assert (await http.put(f"{path}/companions/x/card", json=world_file)).status_code == 404
        assert stored.status_code == 200
        assert [notice["field"] for notice in stored.json()["notices"]] == [
            "character_book.entries.extensions.vectorized"
        ]
        assert [entry["keys"] for entry in card["character_book"]["entries"]] == [
            ["lighthouse"], ["C++"]
        ]  # fmt: skip
        assert card["name"] == stored.json()["name"] == "Wren"
        await w.talk("Hello")
        shown = await w.context("The lighthouse, in C++?")
        assert [of["text"] for of in shown["lore"]["entries"]] == [LIT, "Signs."]
        assert shown["lore"]["not_supported"] == {"vectorized": ["1"]}


async def test_an_unusable_pattern_is_logged_once_without_its_text(
    start: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """By the entry's id, however often the lorebook is used."""
    clock = ManualClock()
    server = await start(clock, eager=False)
    await put_lorebook(server, [lore_entry("bad", "(?=secret)", "Never.", use_regex=True)])
    for _ in range(2):
        client = await server.session()
        await typed(client, server, clock, "A secret?")
        await client.close()
    logged = [
        message for message in map(str, caplog.messages) if "lorebook.entry_unusable" in message
    ]
    assert len(logged) == 1
    assert "bad" in logged[0]
    assert "secret" not in logged[0]


async def test_lore_never_makes_a_prompt_exceed_the_models_context(start: StartServer) -> None:
    """What a full context can do without goes first."""
    entries = [
        lore_entry("first to go", "sea", "@@ignore_on_max_context\n" + "w " * 300, priority=9),
        lore_entry("kept", "sea", "k " * 300, priority=1),
    ]
    async with world(start, model=False, context_tokens=4096, llm_max_tokens=1100) as w:
        await put_lorebook(w.server, entries)
        await w.talk("Hello")
        assert _view_ids(await w.context("The sea")) == ["first to go", "kept"]
        shown = await w.context("The sea " + "x " * 3_900)
        assert _view_ids(shown) == ["kept"]
        assert shown["tokens"] <= 4096 - 1100


async def test_a_new_version_of_the_card_is_used_by_open_sessions(start: StartServer) -> None:
    """Its lore replaces the earlier version's, over HTTP too; an invalid one is refused."""
    clock = ManualClock()
    server = await start(clock, eager=False)
    await put_lorebook(server, [LIGHTHOUSE])
    client = await server.session()
    assert _ids(await typed(client, server, clock, "The lighthouse")) == ["12"]
    body = {"name": "Wren", "persona": "You are Wren."}
    card = {"character_book": {"entries": [LIGHTHOUSE | {"id": 13}]}}
    assert (await _put(server, body | {"card": card})).status_code == 200
    assert _ids(await typed(client, server, clock, "The lighthouse!")) == ["13"]
    too_long = {"character_book": {"entries": [LIGHTHOUSE | {"keys": ["x" * 300]}]}}
    refused = await _put(server, body | {"card": too_long})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "character_book.entries[0].keys"
    assert (await _put(server, body)).status_code == 200
    assert _ids(await typed(client, server, clock, "The lighthouse?")) == []


async def test_the_largest_lorebook_holds_up_nobody(start: StartServer) -> None:
    """Though each entry fires the next ones; the fixture fails if the event loop is held."""
    clock = ManualClock()
    server = await start(clock, eager=False)
    words = [f"name{number}" for number in range(2_000)]
    entries = [
        lore_entry(word, word, " ".join(words[number : number + 40]))
        for number, word in enumerate(words)
    ]
    entries[0] |= {"keys": ["\\bharbou?r\\b"], "use_regex": True, "priority": 9}
    await put_lorebook(server, entries, recursive_scanning=True, token_budget=1_000)
    client = await server.session()
    ready = await typed(client, server, clock, "In the harbour")
    assert _ids(ready)[0] == "name0"
    assert len(ready["lore"]) > 1
    await sent(client, "In the harbour")


async def _put(server: RunningServer, body: object) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        return await client.put(
            f"http://127.0.0.1:{server.port}/v1/admin/companions/wren?user=ana", json=body
        )


def _ids(ready: Any) -> list[str]:
    return [lore["id"] for lore in ready["lore"]]


def _view_ids(shown: Any) -> list[str]:
    return [lore["id"] for lore in shown["lore"]["entries"]]
