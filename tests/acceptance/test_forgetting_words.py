"""What is forgotten by words, over every door: what they say, whole words, and no more."""

import re
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.demo import opened
from tests.acceptance.test_mcp import call, client_of, refused
from tests.acceptance.traces import stored_text
from tests.acceptance.world import World, world
from tests.conftest import RunningServer, StartServer, owner_of

BUS = "my bus was late because of dust"
WILL = "My brother Will is a vet in Porto"
_EXPECTED = (
    "about: expected a word that tells something apart, or one in quotation marks, which then "
    'stands for itself: "Will"'
)


async def contents(w: World) -> set[str]:
    """Return what the user said that is stored."""
    turns = (await w.request("GET", "/turns?limit=1000"))["turns"]
    return {turn["text"] for turn in turns if turn["speaker"] == "user"}


async def forget(w: World, about: str, query: str = "") -> Any:
    """Forget by words; return the receipt or the error."""
    response = await w.response_to("DELETE", f"/memories?about={quote(about)}{query}")
    answer = response.json()
    return answer if response.status_code == 200 else answer["error"]


@pytest.mark.parametrize("word", ["Us", "An", "So", "He", "IT", "I", "in", "'", "so", "the", '"'])
async def test_a_word_never_stands_for_parts_of_others(start: StartServer, word: str) -> None:
    """It is refused, or found nowhere."""
    async with world(start, model=False, mcp=True) as w:
        await w.talk(BUS, WILL)
        error = await forget(w, word)
        wanted = "not_found" if word[1:].isalpha() and word[0].isupper() else "invalid_message"
        assert (error["code"], error["param"]) == (wanted, "about")
        assert (error["message"] == _EXPECTED) == (wanted == "invalid_message")
        async with client_of(w.server) as client:
            told = await refused(
                client, "forget", {"companion": "wren", "user": "ana", "about": word}
            )
            assert told == error
        assert await contents(w) == {BUS, WILL}


async def test_stop_words_that_are_names_are_forgotten(start: StartServer) -> None:
    """Written like that, or in quotation marks; the same word in another case stays."""
    async with world(start, model=False) as w:
        kept = {BUS, "I will visit Porto in an hour", "It is so late, he said"}
        await w.talk(WILL, "My aunt An grows roses", "Grandpa wrote a will", *kept)
        assert (await forget(w, "will"))["code"] == "invalid_message"
        for about in ("brother Will", "An", '"a will"'):
            assert (await forget(w, about))["dry_run"] is False
        assert await contents(w) == kept


async def test_other_spellings_are_forgotten(start: StartServer) -> None:
    """As search finds them."""
    said = {
        "Jose": "My uncle José fishes",
        "ipek": "My aunt İpek paints",
        "OBrien": "My teacher was Mr. O'Brien",
        "zoe": "My cousin Zoë sails",
        "912345678": "My phone number is +351 912 345 678",
        "Mueller": "My doctor is Frau Müller",
        "IBM": "My brother works at I.B.M. in Paris",
        "mice": "My grandmother has a mouse",
        "DE89370400440532013000": "My IBAN is DE89 3704 0044 0532 0130 00",
        "C%2B%2B": "My favourite language is C++",
    }
    async with world(start, model=False) as w:
        kept = {BUS, "My mother takes vitamin C"}
        await w.talk(*said.values(), *kept)
        for about in said:
            await w.request("DELETE", f"/memories?about={about}")
        assert await contents(w) == kept


async def test_what_is_not_found_is_answered_with_near_spellings(start: StartServer) -> None:
    """Of what is stored."""
    async with world(start, model=False) as w:
        await w.talk("My sister is called Marta", BUS)
        error = await forget(w, "Marrta")
        assert (error["code"], error["param"]) == ("not_found", "about")
        assert error["message"] == (
            "about: expected something that is stored here; words that are spelled alike: Marta"
        )


@pytest.mark.parametrize("which", ["about", "session", "memory", "turn", "everything"])
async def test_a_dry_run_counts_what_would_be_erased(start: StartServer, which: str) -> None:
    """By layer, as the receipt does afterwards; nothing is erased or even changed by it."""
    async with world(start, model=False) as w:
        await w.talk("My goal is to sail to Madeira", "I live in Porto", "Madeira is far away")
        await w.next_day()
        memory = (await w.memories())["My goal is to sail to Madeira"]["id"]
        (session,) = (await w.request("GET", "/sessions"))["sessions"]
        first = (await w.request("GET", "/turns?limit=1"))["turns"][0]["id"]
        path = {
            "about": "?about=madeira",
            "session": f"?session={session['id']}",
            "memory": f"/{memory}",
            "turn": f"?turn={first}",
            "everything": "",
        }[which]
        before = await _rows(w.server)
        query = f"{path}{'&' if '?' in path else '?'}dry_run="
        counted = await w.request("DELETE", f"/memories{query}true")
        assert await _rows(w.server) == before
        assert counted["turns"] > 0
        assert counted["layers"]
        receipt = await w.request("DELETE", f"/memories{query}false")
        assert counted == receipt | {"dry_run": True}


async def test_dry_run_is_true_or_false(start: StartServer) -> None:
    """Else nothing is erased."""
    async with world(start, model=False) as w:
        await w.talk(BUS)
        error = await forget(w, "bus", "&dry_run=1")
        assert error["message"] == "dry_run: expected true or false"
        assert await contents(w) == {BUS}


async def _rows(server: RunningServer) -> dict[str, list[str]]:
    """Return all rows of a relationship's tables, with the versions of when they changed."""
    owner = owner_of(server.app.core)
    tables = ("turns", "memories", "memory_terms", "records", "relationships", "sessions", "audit")
    return {
        table: [
            str(row[0])
            for row in await owner.fetch(
                f"SELECT to_jsonb(r) - 'due_at' FROM {table} AS r ORDER BY 1"
            )
        ]
        for table in tables
    }


async def test_an_assistant_asks_before_much_is_forgotten(start: StartServer) -> None:
    """Where more than ten turns would go, the tool only counts them, until it is told to go on."""
    server = await start(mcp=True)
    async with client_of(server) as client:
        await call(client, "remember", text="My boat Zephyrine has a red sail")
        counted = await call(client, "forget", about="red", dry_run=True)
        assert (counted["turns"], counted["dry_run"]) == (1, True)
        assert await _said(server) == 1
        assert (await call(client, "forget", about="red"))["dry_run"] is False
        assert await _said(server) == 0
        for number in range(11):
            await call(client, "remember", text=f"My boat Zephyrine won race number {number}00")
        counted = await call(client, "forget", about="Zephyrine")
        assert (counted["turns"], counted["dry_run"]) == (11, True)
        assert await _said(server) == 11
        receipt = await call(client, "forget", about="Zephyrine", dry_run=False)
        assert receipt == counted | {"dry_run": False}
        assert await _said(server) == 0


async def _said(server: RunningServer) -> int:
    return int(
        await owner_of(server.app.core).fetchval("SELECT count(*) FROM turns WHERE content <> ''")
    )


async def test_the_page_asks_before_much_is_forgotten(start: StartServer, page: Page) -> None:
    """With what would go; the player may leave it."""
    server = await opened(start, page)
    user = await owner_of(server.app.core).fetchval("SELECT external_id FROM users")
    client = await server.connect()
    await client.open_session("wren", user_id=user, name="Ana")
    for number in range(6):
        await client.send(f"My boat Zephyrine won race number {number}00")
        await client.expect_all("response.done", "memory.stored")
    stored = await _said(server)
    asked: list[str] = []
    answers = iter([False, True])

    async def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        await (dialog.accept() if next(answers) else dialog.dismiss())

    page.on("dialog", answer)
    await page.click("#open-panel")
    for told in ("Nothing was forgotten.", "Forgotten for good: "):
        await page.get_by_label("Forget everything about").fill("Zephyrine")
        await page.locator("#forget-about button").click()
        await expect(page.locator("#panel-notice")).to_contain_text(told)
        if told.startswith("Nothing"):
            assert await _said(server) == stored
    assert len(asked) == 2
    assert re.fullmatch(r"Forget 1\d turns, 6 memories, \d+ other records?, for good\?", asked[0])
    assert "zephyrine" not in await stored_text(server)
