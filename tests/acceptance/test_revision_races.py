"""Revisions at an unlucky moment: during background work, other revisions, or forgetting."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.settings.settings import CompanionSettings
from foremind_client import Client
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.model_server import (
    Chat,
    ScriptedModel,
    is_background_request,
)
from tests.acceptance.test_erasure import assert_erased
from tests.acceptance.test_revisions import (
    BEES,
    WOLVES,
    Player,
    last_prompt,
    player,
    promising_model,
    said,
    thing,
)
from tests.acceptance.world import World, world
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of

Event = dict[str, Any]

#: Told by what is withdrawn, and by nothing else.
WORD = "xylophone"
TOLD = f"I promise to bury the {WORD} under the pear tree"
#: The background tasks that read the last exchange of an open session, by what they ask for.
TASKS = {
    "rating": '{"rating"',
    "notes": '"operations": ',
}


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model whose replies promise another thing each time."""
    async with promising_model() as model:
        yield model


def telling(chat: Chat) -> str:
    """Answer a background request with a word of its own wherever it was shown the secret."""
    task, data = (message["content"] for message in chat["messages"][:2])
    text = f"HEIRLOOM {WORD}" if WORD in data or "HEIRLOOM" in data else "Nothing of note"
    answers = {
        "rating": {"rating": 9},
        "notes": {
            "operations": [{"op": "ADD", "kind": "other", "entry": text}],
            "entries": [{"slot": "likes", "value": text}],
        },
    }
    for name, shape in TASKS.items():
        if shape in task:
            return json.dumps(answers[name])
    return background_answer(chat)


async def converse(w: World, change: str, replies: list[str]) -> Client:
    """Talk until something is told that the change will withdraw; `replies` are the next ones."""
    client = await w.talk(*(f"My lighthouse has lamp {number}" for number in range(11)))
    replies += {"edit": ["Well."], "regenerate": [TOLD, "Well."], "choose": ["Well.", TOLD]}[change]
    await client.send(TOLD if change == "edit" else "What will you do?", "m1")
    await client.expect("response.done")
    if change == "choose":
        await client.regenerate("m1")
        await client.expect("response.done")
    return client


async def withdraw(client: Client, change: str) -> None:
    """Make a change, and wait for its end."""
    if change == "edit":
        await client.edit("m1", BEES, "m2")
    elif change == "regenerate":
        await client.regenerate("m1")
    else:
        await client.choose("m1", 0)
    await client.expect("response.chosen" if change == "choose" else "response.done")


@pytest.mark.parametrize(
    ("change", "task"),
    [
        *(("edit", task) for task in TASKS),
        ("regenerate", "rating"),
        ("regenerate", "notes"),
        ("choose", "rating"),  # nothing is noted of a reply alone
    ],
)
async def test_background_work_in_flight_remembers_nothing_withdrawn(
    start: StartServer, change: str, task: str
) -> None:
    """Its answer arrives after the change; all other work has had its answers before."""
    requested, go_on, replies = asyncio.Event(), asyncio.Event(), list[str]()
    settings = CompanionSettings(significance=SignificanceRules(model=True))
    async with world(start, model=True) as w:
        assert w.model is not None
        script = w.model.script
        script.background = telling
        script.reply = lambda _: [replies.pop(0) if replies else "Yes."]

        def hold(chat: Chat) -> asyncio.Event | None:
            told = is_background_request(chat) and WORD in chat["messages"][1]["content"]
            if not told or TASKS[task] not in chat["messages"][0]["content"]:
                return None
            requested.set()
            return go_on

        script.hold_for = hold
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
        )
        client = await converse(w, change, replies)
        async with asyncio.timeout(PATIENCE):
            while not requested.is_set():
                await w.clock.advance(1)
                await asyncio.sleep(0.02)
        await withdraw(client, change)
        go_on.set()
        await w.wait_until_idle()
        ana = Player(w.server, client)
        assert await ana.everywhere(WORD) == await ana.everywhere("heirloom") == []
        await client.send("Good night", "m9")  # now no other reply can be chosen
        await client.expect_all("response.done", "memory.stored")
        await assert_erased(w, WORD, "HEIRLOOM")


def hold_replies(model: ScriptedModel) -> None:
    """Hold the model's replies from now on."""
    model.script.hold_before = asyncio.Event()


def release_replies(model: ScriptedModel) -> None:
    """Release the replies that are held, and hold none from now on."""
    hold, model.script.hold_before = model.script.hold_before, None
    assert hold is not None
    hold.set()


async def requests_sent(model: ScriptedModel, number: int) -> None:
    """Wait until the model was asked for so many replies, or for one again after a change."""
    await eventually(lambda: len(model.script.player_requests) >= number)


async def of_ana(server: RunningServer, method: str, path: str, body: object = None) -> None:
    """Send a request about Ana's relationship."""
    relationship = await owner_of(server.app.core).fetchval(
        "SELECT min(id) FROM relationships WHERE user_id = "
        "(SELECT id FROM users WHERE external_id = 'ana')"
    )
    address = f"http://127.0.0.1:{server.port}/v1/relationships/{relationship}{path}"
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        response = await client.request(method, address, params={"user": "ana"}, json=body)
    assert response.status_code == 200, response.text


async def test_the_reply_stands_again_if_none_of_twenty_is_replaced(
    start: StartServer, model: ScriptedModel
) -> None:
    """It is the one that stood, be it the earliest or the latest; and none is lost."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    await ana.say(BEES, "m1")
    made = [await ana.again("m1") for _ in range(19)]
    for index in (19, 0):
        standing = await ana.choose("m1", index)
        model.script.status = 500
        assert (await ana.again("m1"))["status"] == "failed"
        restored = (await ana.client.expect("response.chosen"))["turn"]
        assert (restored["text"], restored["index"]) == (standing["text"], index)
        assert restored["count"] == 20
        model.script.status = 200
    done = await ana.again("m1")  # in place of the earliest
    assert (done["index"], done["count"]) == (19, 20)
    assert said(await ana.choose("m1", 0)) == said(made[0])
    for _ in range(5):
        done = await ana.again("m1")
        assert (done["index"], done["count"]) == (19, 20)
    assert (await ana.choose("m1", 19))["text"] == done["text"]


async def test_a_choice_in_another_window_stands(start: StartServer, model: ScriptedModel) -> None:
    """A reply that was being made meanwhile is stopped, and the former one does not return."""
    server = await start(llm_url=model.url)
    ana, second = await player(server), await player(server)
    first = await ana.say(BEES, "m1")
    again = await ana.again("m1")
    hold_replies(model)
    await ana.client.regenerate("m1")
    await requests_sent(model, 3)
    assert said(await second.choose("m1", 0)) == said(first)
    done = await ana.client.expect("response.done")
    assert (done["status"], done["text"]) == ("cancelled", "")
    assert said((await ana.client.expect("response.chosen"))["turn"]) == said(first)
    release_replies(model)
    assert await ana.stored() == [BEES, said(first)]
    await second.say("What did you promise me?", "m2")
    assert thing(first) in last_prompt(model)
    assert thing(again) not in last_prompt(model)


@pytest.mark.parametrize("windows", [1, 2])
async def test_one_id_is_one_message_while_it_is_answered(
    start: StartServer, model: ScriptedModel, windows: int
) -> None:
    """Another text under it is refused, edited or sent; the same text is answered once."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    other = ana if windows == 1 else await player(server)
    await ana.say(WOLVES, "m1")
    hold_replies(model)
    await ana.client.edit("m1", BEES, "m2")
    await ana.client.expect("message.accepted")
    for text in (
        {"type": "message.edit", "id": "m2", "message_id": "m1", "text": "Another text"},
        {"type": "message.send", "id": "m2", "text": "Another text"},
    ):
        error = await other.refused(text)
        assert (error["code"], error["param"]) == ("conflict", "id")
    await other.client.edit("m1", BEES, "m2")
    release_replies(model)
    done = await ana.client.expect("response.done")
    assert await ana.stored() == [BEES, said(done)]


async def test_a_request_for_another_reply_has_an_id_of_its_own(
    start: StartServer, model: ScriptedModel
) -> None:
    """It may be that of a message: neither is mistaken for the other."""
    server = await start(llm_url=model.url)
    ana = await player(server)
    hold_replies(model)
    await ana.client.send(BEES, "1")
    await requests_sent(model, 1)
    await ana.client.regenerate("1", "1")
    assert (await ana.client.expect("response.done"))["status"] == "cancelled"
    await requests_sent(model, 2)
    await ana.client.send("What did you promise me?", "2")
    await requests_sent(model, 3)
    await ana.client.regenerate("2", "3")
    await requests_sent(model, 4)
    await ana.client.send("And then?", "3")
    release_replies(model)
    async with asyncio.timeout(PATIENCE):
        while (await ana.client.expect("response.done"))["message_id"] != "3":
            pass
    assert (await ana.stored())[-2] == "And then?"


async def test_an_edit_takes_the_place_of_a_message_with_a_reply_in_the_making(
    start: StartServer, model: ScriptedModel
) -> None:
    """Whether another reply is made to it or the first; of two windows that edit, one is first."""
    server = await start(llm_url=model.url)
    ana, second = await player(server), await player(server)
    await ana.say(WOLVES, "m1")
    hold_replies(model)
    await ana.client.regenerate("m1")
    await requests_sent(model, 2)
    await ana.client.edit("m1", "My sister Mira keeps geese in Faro", "m2")
    await requests_sent(model, 3)
    await second.client.edit("m2", BEES, "m3")
    error = await ana.refused(
        {"type": "message.edit", "id": "m4", "message_id": "m1", "text": "Another text"}
    )
    assert (error["code"], error["message_id"]) == ("not_last_message", "m4")
    release_replies(model)
    await second.client.expect("response.done")
    assert (await ana.stored())[0] == BEES
    assert len(await ana.stored()) == 2
    assert await ana.everywhere("wolves") == await ana.everywhere("geese") == []


async def test_what_is_not_remembered_is_not_remembered_when_it_is_revised(
    start: StartServer, model: ScriptedModel
) -> None:
    """Nor what is chosen once the user has withdrawn the consent that is needed."""
    server = await start(llm_url=model.url)
    settings = CompanionSettings(consent="required")
    await server.app.core.stores.companions.put(
        CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
    )
    client = await server.connect()
    user = {"id": "ana", "name": "Ana"}
    await client.send_raw(
        {"type": "session.open", "companion": "wren", "user": user, "consent": True}
    )
    await client.expect("session.opened")
    ana = Player(server, client)
    await client.send(WOLVES, "m1", remember=False)
    await client.expect("response.done")
    await ana.again("m1")
    await ana.choose("m1", 0)
    assert await ana.memories() == []
    await client.edit("m1", BEES, "m2")
    await client.expect("response.done")
    done = await ana.again("m2")
    assert set(await ana.memories()) == {BEES, said(done)}
    await of_ana(server, "PATCH", "/config", {"consent": False})
    await ana.choose("m2", 0)
    assert await ana.memories() == [BEES]


async def test_what_does_not_exist_or_is_forgotten_cannot_be_revised(
    start: StartServer, model: ScriptedModel
) -> None:
    """Messages of other users are as unknown as those that nobody sent."""
    server = await start(llm_url=model.url)
    ana, ben = await player(server), Player(server, await server.session("ben"))
    told = await ben.say(WOLVES, "b1")
    await ana.say("Good morning", "m1")
    await ana.say(BEES, "m2")
    indexes: Sequence[object] = (-1, 1e9, 1.5, 2**70, "0", None, True)
    changes: list[Event] = [
        {"type": "message.edit", "id": "e", "text": "Anything"},
        {"type": "response.regenerate", "id": "g"},
        {"type": "response.choose", "index": 0},
    ]
    for index in indexes:
        error = await ana.refused({"type": "response.choose", "message_id": "m2", "index": index})
        assert (error["code"], error["param"]) == ("invalid_message", "index")
    for change in changes:
        messages = []
        for message_id in ("b1", "nobody"):
            error = await ana.refused(change | {"message_id": message_id})
            assert (error["code"], error["param"]) == ("not_last_message", "message_id")
            messages.append(error["message"])
        assert messages[0] == messages[1]
    await of_ana(server, "DELETE", "/memories")
    for change in changes:
        error = await ana.refused(change | {"message_id": "m2"})
        assert error["code"] == "nothing_said"
    assert await ben.stored() == [WOLVES, said(told)]
