"""Takes the pictures of the page that the documents show: `make pictures`."""

import asyncio
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright, expect

from foremind.domain.settings import load_settings
from foremind.testing.server_process import running_server
from tests.acceptance.test_page import ARGUMENTS
from tests.browser import ensure_browser

DOCS = Path(__file__).parents[1] / "docs"
_SAID = (
    "My sister Lena got married last Saturday in Faro",
    "haha yeah, that was a day",
    "I can't eat shellfish",
    "My goal is to sail to Madeira in June",
    "Who got married?",
)
_KEY_MS = 60
_BEFORE_ENTER_MS = 250  # as typists take between the last key and Enter


async def main() -> None:
    """Talk for a while with a server of its own, and take both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        present = load_settings()
        settings = load_settings(data_dir=Path(folder), models_path=present.models_dir)
        with running_server(settings) as (url, _):
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=ensure_browser(), args=ARGUMENTS
                )
                page = await browser.new_page(viewport={"width": 1180, "height": 700})
                await page.goto(url.replace("ws://", "http://").replace("/v1/ws", "/"))
                await _talk(page)
                await page.screenshot(path=DOCS / "page.png")
                await page.locator("#open-panel").click()
                notes = page.locator("#layers details", has_text="Notes").locator("li")
                await expect(notes.first).to_be_attached()
                await page.screenshot(path=DOCS / "panel.png")
                await browser.close()


async def _talk(page: Page) -> None:
    await expect(page.locator("#introduce")).to_be_visible()
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    for number, said in enumerate(_SAID, 1):
        await expect(page.locator("#draft")).to_be_focused()
        await page.keyboard.type(said, delay=_KEY_MS)
        await page.wait_for_timeout(_BEFORE_ENTER_MS)
        await page.keyboard.press("Enter")
        await expect(page.locator("#turns li.companion")).to_have_count(number + 1)
        await expect(page.locator("#turns li.user").last).to_contain_text("significance")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
