"""The page beside another one of its player, and after its server was killed, in a real browser."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from foremind.domain.settings.settings import Settings
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.demo import enter, opened
from tests.acceptance.test_restart import process
from tests.conftest import PATIENCE, StartServer


@pytest.fixture
async def pages(browser: Browser) -> AsyncIterator[BrowserContext]:
    """Pages of one player; that a server is away is no failure."""
    expect.set_options(timeout=1000 * PATIENCE)
    context = await browser.new_context(viewport={"width": 1200, "height": 760})
    context.set_default_timeout(1000 * PATIENCE)
    yield context
    await context.close()


async def test_two_pages_show_what_is_said_in_either(
    start: StartServer, pages: BrowserContext
) -> None:
    """Both sides, once, with what can be done about the last exchange."""
    first, other = await pages.new_page(), await pages.new_page()
    async with scripted_model(Script(reply=lambda _: ["Aye."])) as model:
        server = await start(llm_url=model.url)
        await enter(first, server)
        await other.goto(first.url)
        await expect(other.locator("#draft")).to_be_focused()
        for number, speaker in enumerate((first, other, first), 1):
            await speaker.locator("#draft").fill(f"The rope is {number} feet long")
            await speaker.locator("#draft").press("Enter")
            for window in (first, other):
                await expect(window.locator("#turns li.user")).to_have_count(number)
                await expect(window.locator("#turns li.user .text").last).to_have_text(
                    f"The rope is {number} feet long"
                )
                await expect(window.locator("#turns li.companion")).to_have_count(number + 1)
        await other.get_by_role("button", name="Another reply").click()
        for window in (first, other):
            await expect(window.locator("#turns .which")).to_have_text("2/2")
            await expect(window.locator("#turns li.companion")).to_have_count(4)
        await first.get_by_role("button", name="The reply before").click()
        for window in (first, other):
            await expect(window.locator("#turns .which")).to_have_text("1/2")
            await expect(window.locator("#turns li.companion")).to_have_count(4)
        await other.get_by_role("button", name="Edit your last message").click()
        await other.locator("#draft").fill("The rope is gone")
        await other.locator("#draft").press("Enter")
        for window in (first, other):
            messages = window.locator("#turns li.user .text")
            await expect(messages).to_have_count(3)
            await expect(messages.last).to_have_text("The rope is gone")
            await expect(window.locator("#turns li.companion")).to_have_count(4)
            await expect(window.locator("#turns .which")).to_have_count(0)


async def test_what_was_read_stays_when_the_server_is_killed(
    settings: Settings, pages: BrowserContext
) -> None:
    """The message is answered then; what is the same again replaces what was read."""
    shown = await pages.new_page()
    script = Script(
        reply=lambda _: ["Once ", "upon ", "a time"], hold_before=asyncio.Event(), hold_after=2
    )
    async with scripted_model(script) as model:
        model_url = {"FOREMIND_LLM_URL": model.url, "FOREMIND_LLM_MODEL": "test"}
        async with process(settings, **model_url) as server:
            await enter(shown, server)
            await shown.locator("#draft").fill("Tell me a story")
            await shown.locator("#draft").press("Enter")
            replies = shown.locator("#turns li.companion .text")
            await expect(replies.last).to_have_text("Once upon ")
            await server.stop(signal.SIGKILL)
            await expect(shown.locator("#lamp")).to_have_attribute("data-state", "away")
            await expect(replies.last).to_have_text("Once upon ")
            await server.start()
            await expect(shown.locator("#turns .note", has_text="cut off")).to_be_visible()
            await expect(replies.last).to_have_text("Once upon ")
            assert script.hold_before is not None
            script.hold_before.set()
            await expect(replies.last).to_have_text("Once upon a time")
            await expect(shown.locator("#turns .note", has_text="cut off")).to_have_count(0)
            await expect(shown.locator("#turns li.user")).to_have_count(1)
            await expect(shown.get_by_role("button", name="Another reply")).to_have_count(1)


async def test_a_message_without_a_reply_can_be_answered(
    start: StartServer,
    page: Page,
) -> None:
    """Also in a page that is opened later."""
    script = Script(reply=lambda _: ["Aye."], hold_before=asyncio.Event())
    async with scripted_model(script) as model:
        await opened(start, page, llm_url=model.url)
        await page.locator("#draft").fill("The rope is red")
        await page.locator("#draft").press("Enter")
        await expect(page.locator("#lamp-text")).to_have_text("speaking")
        again = page.get_by_role("button", name="Another reply")
        await expect(again).to_have_count(0)
        await page.keyboard.press("Escape")
        await expect(again).to_have_count(1)
        await page.reload()
        assert script.hold_before is not None
        script.hold_before.set()
        await again.click()
        await expect(page.locator("#turns li.companion .text").last).to_have_text("Aye.")
        await expect(page.locator("#turns li.user")).to_have_count(1)
