"""The page in a real browser: type with pauses, see ready, send, reload, ask, recall."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.browser import ensure_browser
from tests.conftest import RunningServer, StartServer, owner_of

SAID = "I promise to name my boat Zephyrine"
ASKED = "What will I name my boat?"
# Chromium as root, without the calls home that it makes by itself.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """A page that fails the test on any script error or outside request."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=ensure_browser(), args=_ARGUMENTS
        )
        page = await browser.new_page(viewport={"width": 1200, "height": 760})
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console",
            lambda said: troubles.append(said.text) if said.type == "error" else None,
        )
        page.on(
            "request",
            lambda request: (
                None if "://127.0.0.1:" in request.url else troubles.append(request.url)
            ),
        )
        yield page
        await browser.close()
        assert troubles == []


async def enter(page: Page, server: RunningServer) -> None:
    """Open the page for the first time and say who is there, with the keyboard alone."""
    await page.goto(f"http://127.0.0.1:{server.port}/")
    await expect(page.locator("#introduce")).to_be_visible()
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    await expect(page.locator("#draft")).to_be_focused()


async def say(page: Page, text: str) -> None:
    """Type with a pause in the middle, see the lamp, press Enter."""
    lamp = page.locator("#lamp")
    half = len(text) // 2
    await page.keyboard.type(text[:half], delay=10)
    await expect(lamp).to_have_attribute("data-state", "ready")
    await page.keyboard.type(text[half:], delay=10)
    await expect(lamp).to_have_attribute("data-state", "listening")
    await expect(lamp).to_have_attribute("data-state", "ready")
    await page.keyboard.press("Enter")


async def test_a_player_is_remembered_across_a_reload(start: StartServer, page: Page) -> None:
    """The whole path as a person sees it."""
    server = await start()
    await enter(page, server)
    await expect(page.locator("#notice")).to_contain_text("No language model is configured")
    await say(page, SAID)
    mine = page.locator("#turns li.user").last
    await expect(mine).to_contain_text("remembered · significance 0.")
    await expect(page.locator("#turns li.companion")).to_have_count(2)
    await expect(page.locator("#summary")).to_contain_text("before Enter (hit)")
    for row in ("settled", "embed", "search", "ready", "Enter", "first word", "remembered"):
        await expect(page.locator("#timeline dt", has_text=row).first).to_be_visible()
    await page.reload()
    await expect(page.locator("#turns li.user")).to_have_text(SAID)
    await expect(page.locator("#draft")).to_be_focused()
    await say(page, ASKED)
    await expect(page.locator("#memories li").first).to_contain_text(SAID)
    await expect(page.locator("#memories li").first).to_contain_text("score 0.")
    reply = page.locator("#turns li.companion").last
    await expect(reply).to_contain_text("Zephyrine")
    await expect(page.locator("#turns li.user").last).to_contain_text("significance")
    await expect(reply).to_be_in_viewport(ratio=1)


async def test_a_player_may_take_something_back(start: StartServer, page: Page) -> None:
    """One button beside what is recalled, also by keyboard; then it is gone from everywhere."""
    server = await start()
    await enter(page, server)
    await say(page, SAID)
    mine = page.locator("#turns li.user")
    await expect(mine.last).to_contain_text("remembered")
    await expect(mine.last).to_contain_text("phrase")
    await say(page, ASKED)
    await expect(page.locator("#memories li")).to_have_count(1)
    await page.get_by_role("button", name=f"Forget: {SAID}").press("Enter")
    await expect(page.locator("#memories li")).to_have_count(0)
    await expect(mine).to_have_count(1)
    await page.reload()
    await expect(mine).to_have_count(1)
    await expect(mine).to_have_text(ASKED)
    left = await owner_of(server.app.core).fetch("SELECT content FROM memories")
    assert all("Zephyrine" not in row["content"] for row in left)


async def test_the_page_comes_back_after_the_server_was_away(
    start: StartServer, page: Page
) -> None:
    """What was sent meanwhile arrives once."""
    server = await start()
    await enter(page, server)
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "idle")
    # It may be back within a moment, so every state of the lamp is noted.
    await page.evaluate(
        "window.states = []; new MutationObserver(([{ target }]) => "
        "window.states.push(target.dataset.state)).observe("
        "document.getElementById('lamp'), { attributeFilter: ['data-state'] })"
    )
    for session in server.app.registry._all():
        session.disconnect(4408, "heartbeat lost")
    await page.wait_for_function("window.states.includes('away')")
    await page.keyboard.type("Hello again")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion").last).not_to_have_text("", timeout=10_000)
    await expect(page.locator("#turns li.user")).to_have_count(1)
    await expect(page.locator("#turns li.user .note")).to_be_visible()
    count = await owner_of(server.app.core).fetchval(
        "SELECT count(*) FROM turns WHERE speaker = 'user'"
    )
    assert count == 1


async def test_text_is_shown_as_text(start: StartServer, page: Page) -> None:
    """Markup that a player types is not markup."""
    server = await start()
    await enter(page, server)
    await say(page, "I promise <img src=x onerror=alert(1)> & more")
    await expect(page.locator("#turns li.user")).to_contain_text("<img src=x onerror=alert(1)>")
    assert await page.locator("#turns img").count() == 0


async def test_a_phone_shows_everything_without_scrolling_sideways(
    start: StartServer, page: Page
) -> None:
    """At 360 pixels."""
    await page.set_viewport_size({"width": 360, "height": 740})
    server = await start()
    await enter(page, server)
    await say(page, "I promise " + "averyveryverylongwordwithoutanyspace" * 3)
    await expect(page.locator("#turns li.companion")).to_have_count(2)
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360


async def test_the_panel_shows_corrects_saves_exports_and_forgets(
    start: StartServer, page: Page
) -> None:
    """Everything that is known, with the keyboard or the mouse; forgotten is gone."""
    server = await start()
    await enter(page, server)
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
        await page.get_by_role("button", name="Export").click()
    assert "Marguerite" in (await (await download.value).path()).read_text()
    await page.get_by_label("Forget everything about").fill("Marguerite")
    await page.locator("#forget-about button").click()
    await expect(page.locator("#panel-notice")).to_contain_text("Forgotten for good: 1 memories")
    await expect(layers).not_to_contain_text("name my boat")
    await page.get_by_role("button", name="Close").click()
    await expect(page.locator("#draft")).to_be_visible()
