"""The demo page in a real browser: drafts, replies, reloads, the memory panel, foreign pages."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page, expect

from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.demo import ASKED, SAID, lamp_was, opened, record_lamp_states, say
from tests.conftest import (
    FIRST_RELATIONSHIP,
    StartServer,
    eventually_async,
    owner_of,
)
from tests.unit.auth.test_access_tokens import SECRET, token


async def test_a_player_is_remembered_across_a_reload(start: StartServer, page: Page) -> None:
    """The path of a message as a player sees it."""
    await opened(start, page)
    await expect(page.locator("#notice")).to_contain_text("No language model is configured")
    await say(page, SAID)
    own_turn = page.locator("#turns li.user").last
    await expect(own_turn.locator(".note")).to_have_text("remembered")
    await expect(own_turn.locator(".note")).to_have_attribute(
        "title", re.compile("0.*words that ask")
    )
    await expect(page.locator("#turns li.companion")).to_have_count(2)
    await page.locator("#how summary").click()
    await expect(page.locator("#summary")).to_contain_text("before Enter (all of it prepared)")
    for row in ("settled", "embed", "search", "ready", "Enter", "first word", "remembered"):
        await expect(page.locator("#timeline dt", has_text=row).first).to_be_visible()
    await page.reload()
    await expect(page.locator("#turns li.user")).to_contain_text(SAID)
    await expect(page.locator("#draft")).to_be_focused()
    await say(page, ASKED)
    await expect(page.locator("#memories li").first).to_contain_text(SAID)
    score = re.compile(r"^score 0\.\d\d")
    await expect(page.locator("#memories li").first).to_have_attribute("title", score)
    reply = page.locator("#turns li.companion").last
    await expect(reply).to_contain_text("Zephyrine")
    await expect(page.locator("#turns li.user .note").last).to_be_visible()
    await expect(reply.locator(".said")).to_be_in_viewport(ratio=1)


async def test_a_player_may_forget_a_recalled_memory(start: StartServer, page: Page) -> None:
    """With a button next to it, also by keyboard; it disappears from page and database."""
    server = await opened(start, page)
    await say(page, SAID)
    own_turns = page.locator("#turns li.user")
    await expect(own_turns.last).to_contain_text("remembered")
    await say(page, ASKED)
    await expect(page.locator("#memories li")).to_have_count(1)
    await page.get_by_role("button", name=f"Forget: {SAID}").press("Enter")
    await page.get_by_role("button", name="Forget now").press("Enter")
    await expect(page.locator("#memories li")).to_have_count(0)
    await expect(own_turns).to_have_count(1)
    await page.reload()
    await expect(own_turns).to_have_count(1)
    await expect(own_turns).to_contain_text(ASKED)
    memories = await owner_of(server.app.core).fetch("SELECT content FROM memories")
    assert all("Zephyrine" not in row["content"] for row in memories)


async def test_the_page_reconnects_after_a_lost_connection(start: StartServer, page: Page) -> None:
    """A message sent meanwhile arrives once."""
    server = await opened(start, page)
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "idle")
    await record_lamp_states(page)
    for session in server.app.registry._all():
        session.client.disconnect(4408, "heartbeat lost")
    await lamp_was(page, "away")
    await page.keyboard.type("Hello again")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion").last).not_to_have_text("")
    await expect(page.locator("#turns li.user")).to_have_count(1)
    await expect(page.locator("#turns li.user .note")).to_be_visible()
    count = await owner_of(server.app.core).fetchval(
        "SELECT count(*) FROM turns WHERE speaker = 'user'"
    )
    assert count == 1


async def test_markup_in_messages_is_shown_as_text(start: StartServer, page: Page) -> None:
    await opened(start, page)
    await say(page, "I promise <img src=x onerror=alert(1)> & more")
    await expect(page.locator("#turns li.user")).to_contain_text("<img src=x onerror=alert(1)>")
    assert await page.locator("#turns img").count() == 0


async def test_a_phone_shows_the_page_without_horizontal_scrolling(
    start: StartServer, page: Page
) -> None:
    """At 360 pixels."""
    await page.set_viewport_size({"width": 360, "height": 740})
    await opened(start, page)
    await say(page, "I promise " + "averyveryverylongwordwithoutanyspace" * 3)
    await expect(page.locator("#turns li.companion")).to_have_count(2)
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360


async def test_the_panel_shows_corrects_pins_exports_and_erases(
    start: StartServer, page: Page
) -> None:
    """Everything that is known about the user."""
    await opened(start, page)
    await say(page, SAID)
    await expect(page.locator("#turns .note")).to_contain_text("remembered")
    await page.click("#open-panel")
    layers = page.locator("#layers")
    await expect(layers).to_contain_text("Zephyrine")
    await page.get_by_label(f"Correct: {SAID}").click()
    await page.get_by_label("What it should say").fill("I promise to name my boat Marguerite")
    await page.get_by_role("button", name="Keep").click()
    await expect(layers).to_contain_text("Marguerite")
    await expect(layers).not_to_contain_text("Zephyrine")
    await page.get_by_label("What to save").fill("The gate code is 4711")
    await page.get_by_role("button", name="Save").click()
    await expect(layers).to_contain_text("4711")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export", exact=True).click()
    assert "Marguerite" in (await (await download.value).path()).read_text()
    await page.get_by_label("Forget everything about").fill("Marguerite")
    await page.locator("#forget-about button").click()
    await expect(page.locator("#panel-notice")).to_contain_text("Forgotten for good: 1 memory,")
    await expect(layers).not_to_contain_text("name my boat")
    await page.get_by_role("button", name="Close").click()
    await expect(page.locator("#draft")).to_be_visible()


async def test_the_panel_says_what_waits_to_be_read(start: StartServer, page: Page) -> None:
    """And until when; nothing once it was read."""
    server = await opened(start, page)
    await say(page, "My goal is to run a marathon")
    await expect(page.locator("#turns .note")).to_have_text("remembered")
    await page.click("#open-panel")
    await expect(page.locator("#layers > p")).to_have_text(
        re.compile(
            r"^Not in notes and profile yet: 2 turns, by \d+:\d\d:\d\d [AP]M at the latest\.$"
        )
    )
    await owner_of(server.app.core).execute("UPDATE relationships SET due_at = now()")

    async def is_read() -> bool:
        await page.click("#close-panel")
        await page.click("#open-panel")
        await expect(page.locator("#layers details").first).to_be_visible()
        return await page.locator("#layers > p").count() == 0

    await eventually_async(is_read)
    await expect(page.locator("#layers")).to_contain_text("My goal is to run a marathon")


async def test_a_message_without_a_memory_can_be_erased_on_the_page(
    start: StartServer, page: Page
) -> None:
    """On its own; the other messages of its session stay."""
    server = await opened(start, page)
    for text, note in (("The sky is grey", "not kept"), (SAID, "remembered")):
        await say(page, text)
        await expect(page.locator("#turns li.user .note").last).to_contain_text(note)
    await page.click("#open-panel")
    layers = page.locator("#layers")
    await layers.get_by_role("button", name="Show the session").click()
    turn = layers.locator("li > div", has_text="The sky is grey").first
    await expect(turn).to_contain_text("not kept")
    await turn.get_by_role("button").click()
    await expect(page.locator("#panel-notice")).to_contain_text("Forgotten for good: 0 memories,")
    await layers.get_by_role("button", name="Show the session").click()
    await expect(layers).to_contain_text("remembered")
    await expect(layers).not_to_contain_text("The sky is grey")
    turns = await owner_of(server.app.core).fetch("SELECT content FROM turns")
    assert "grey" not in str([turn["content"] for turn in turns])
    assert SAID in str([turn["content"] for turn in turns])


async def test_the_page_exports_and_erases_its_user(start: StartServer, page: Page) -> None:
    """Erasure must be confirmed first."""
    server = await opened(start, page)
    await say(page, SAID)
    await expect(page.locator("#turns .note")).to_contain_text("remembered")
    await page.click("#open-panel")
    async with page.expect_download() as download:
        await page.click("#export-user")
    assert "Zephyrine" in (await (await download.value).path()).read_text()
    await page.click("#erase-user")  # a dialog without a handler is dismissed
    users = "SELECT count(*) FROM users"
    assert await owner_of(server.app.core).fetchval(users) == 1
    page.once("dialog", lambda dialog: dialog.accept())
    await page.click("#erase-user")
    await expect(page.locator("#notice")).to_contain_text("Erased for good: 1 companion,")
    assert await owner_of(server.app.core).fetchval(users) == 0


_MANAGE = """async ([server, token]) => {
    const { Foremind } = await import(`${server}/foremind.js`);
    const url = `${server.replace("http", "ws")}/v1/ws`;
    const mind = new Foremind({ companion: "wren", token, url });
    const opened = new Promise((done) => mind.addEventListener("session.opened", done));
    mind.connect();
    await opened;
    const { memories } = await mind.request("GET", "/memories");
    const receipt = await mind.forget(memories[0].id);
    const saved = await mind.request("POST", "/records", { layer: "vault", content: "4711" });
    const wrong = mind.request("GET", "/memories?limit=0");
    const refused = await wrong.catch(({ message }) => message);
    mind.close();
    return [memories[0].content, receipt.memories.length, Boolean(saved.id), refused];
}"""
_REACH = """async ([server, token]) => {
    const headers = { authorization: `Bearer ${token}` };
    const tries = [
        import(`${server}/foremind.js`),
        fetch(`${server}/v1/relationships`, { headers }),
        fetch(`${server}/v1/relationships`),
        fetch(`${server}/v1/relationships/FIRST/memories`, { method: "DELETE", headers }),
    ];
    return (await Promise.allSettled(tries)).map(({ status }) => status);
}""".replace("FIRST", str(FIRST_RELATIONSHIP))
_COMPLETE = """async ([server, token]) => {
    const headers = {
        authorization: `Bearer ${token}`, "content-type": "application/json",
        "x-stainless-lang": "js", "x-stainless-retry-count": "0",
    };
    const body = JSON.stringify({ model: "wren", messages: [{ role: "user", content: "Hello" }] });
    return (await fetch(`${server}/v1/chat/completions`, { method: "POST", headers, body })).status;
}"""
_ATTACK = """async (server) => {
    const mode = "no-cors";
    await fetch(`${server}/v1/admin/drain?user=ana`, { method: "POST", mode, body: "{}" });
    const user = JSON.stringify({ user: "ana" });
    const revoke = `${server}/v1/admin/revocations?user=ana`;
    await fetch(revoke, { method: "POST", mode, body: user });
    await fetch(`${server}/v1/relationships/FIRST/export?user=ana`, { mode });
    const form = document.createElement("form");
    form.method = "POST";
    form.action = `${server}/v1/companions/wren/documents?user=ana&title=x`;
    form.enctype = "text/plain";
    document.body.append(form);
    form.submit();
}""".replace("FIRST", str(FIRST_RELATIONSHIP))


@asynccontextmanager
async def game_page(browser: Browser) -> AsyncIterator[tuple[str, Page]]:
    """Return the origin of a game's site and an empty page of it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n"
        writer.write(f"{head}<!doctype html><title>Game</title>".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as site:
        origin = f"http://127.0.0.1:{site.sockets[0].getsockname()[1]}"
        page = await browser.new_page()
        await page.goto(f"{origin}/")
        yield origin, page
        await page.close()


async def test_a_page_of_an_allowed_origin_manages_memory(
    start: StartServer, browser: Browser
) -> None:
    """With foremind.js and a token, errors included; a page of another origin cannot."""
    async with game_page(browser) as (allowed, page), game_page(browser) as (_, foreign):
        server = await start(auth_secret=SECRET, allowed_origins=(allowed,))
        client = await server.connect()
        await client.open_session("wren", token=token())
        await client.send(SAID)
        await client.expect("memory.stored")
        arguments = [f"http://127.0.0.1:{server.port}", token()]
        content, forgotten, saved, refused = await page.evaluate(_MANAGE, arguments)
        assert (content, forgotten, saved) == (SAID, 1, True)
        assert refused == "limit: expected a number from 1 to 1000"
        assert await foreign.evaluate(_REACH, arguments) == ["rejected"] * 4
        remaining = await owner_of(server.app.core).fetchval("SELECT count(*) FROM records")
        assert remaining > 0


async def test_a_page_of_an_allowed_origin_sends_headers_of_its_own(
    start: StartServer, browser: Browser
) -> None:
    """As the official clients of the chat door do."""
    async with game_page(browser) as (allowed, page):
        server = await start(auth_secret=SECRET, allowed_origins=(allowed,))
        status = await page.evaluate(_COMPLETE, [f"http://127.0.0.1:{server.port}", token()])
        assert status == 200


async def test_a_foreign_page_changes_nothing_on_a_server_in_open_mode(
    start: StartServer, browser: Browser
) -> None:
    """Neither with a form nor with requests that need no preflight."""
    server = await start()
    await server.session()
    async with game_page(browser) as (_, page):
        async with page.expect_navigation():
            await page.evaluate(_ATTACK, f"http://127.0.0.1:{server.port}")
        assert "expected this server's own" in await page.content()
    owner = owner_of(server.app.core)
    for table in ("revocations", "documents", "audit"):
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 0
    assert not server.app.registry.draining


async def test_the_last_message_is_edited_and_its_reply_made_anew_and_chosen(
    start: StartServer, page: Page
) -> None:
    """By small buttons with names; what is shown is what stands, also after a reload."""
    replies = iter(["First.", "Second.", "Third."])
    script = Script(background=lambda _: "{}")
    script.reply = lambda _: [next(replies)]
    async with scripted_model(script) as model:
        await opened(start, page, llm_url=model.url)
        await page.keyboard.type("My boat is called Zephyrine")
        await page.keyboard.press("Enter")
        reply = page.locator("#turns li.companion").last
        await expect(reply.locator(".text")).to_have_text("First.")
        await page.get_by_role("button", name="Another reply").click()
        await expect(reply.locator(".text")).to_have_text("Second.")
        await expect(reply.locator(".which")).to_have_text("2/2")
        await expect(page.get_by_role("button", name="The reply after")).to_be_disabled()
        await page.get_by_role("button", name="The reply before").click()
        await expect(reply.locator(".text")).to_have_text("First.")
        await page.reload()
        await expect(reply.locator(".which")).to_have_text("1/2")
        await page.get_by_role("button", name="Edit your last message").click()
        await expect(page.locator("#draft")).to_have_value("My boat is called Zephyrine")
        await page.locator("#draft").fill("My boat is called Halcyon")
        await page.keyboard.press("Enter")
        await expect(reply.locator(".text")).to_have_text("Third.")
        await expect(page.locator("#turns li.user .text")).to_have_text("My boat is called Halcyon")
        await expect(page.locator("#turns li.companion")).to_have_count(2)
        await page.reload()
        await expect(page.locator("#turns li.user .text")).to_have_text("My boat is called Halcyon")


async def test_days_and_events_are_what_they_are(start: StartServer, page: Page) -> None:
    """The page states the browser's language and region; what a game reported nobody said."""
    server = await opened(start, page)
    await say(page, "My sister Lena's wedding is on 03/04/2027")
    await expect(page.locator("#turns li.user .note")).to_have_count(1)
    language = await page.evaluate("navigator.language")
    assert language == "en-US"
    happened = "SELECT happened_from FROM memories WHERE happened_from IS NOT NULL"
    assert (await owner_of(server.app.core).fetchval(happened)).strftime("%m-%d") == "03-04"
    bridge = "The bridge over the river Corgo collapsed"
    events = [{"id": "e1", "type": "observation", "text": bridge}]
    user = await owner_of(server.app.core).fetchval("SELECT external_id FROM users")
    base = f"http://127.0.0.1:{server.port}/v1/relationships/{FIRST_RELATIONSHIP}"
    response = await page.request.post(f"{base}/events?user={user}", data={"events": events})
    assert response.ok
    await page.keyboard.type("what happened to the bridge?")
    await expect(page.locator("#memories li", has_text=bridge)).to_contain_text("· an observation")
    await page.click("#open-panel")
    await page.locator("#layers summary", has_text="Memories").click()
    await expect(page.locator("#layers li", has_text=bridge)).to_contain_text("an observation · ")
