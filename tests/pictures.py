"""Take the pictures of the demo page for the documentation: `make pictures`."""

import asyncio
import io
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from PIL import Image
from playwright.async_api import Page, async_playwright, expect

from foremind.domain.settings.settings import load_settings
from foremind_eval.processes.server_process import running_server
from tests.acceptance.test_demo_page import ARGUMENTS
from tests.browser import ensure_browser

DOCS = Path(__file__).parents[1] / "docs"
_MESSAGES = (
    "My sister Lena got married last Saturday in Faro",
    "haha yeah, that was a day",
    "I can't eat shellfish",
    "My goal is to sail to Madeira in June",
    "Who got married?",
)
_KEY_MS = 60
_BEFORE_ENTER_MS = 250  # a typical interval between the last key and Enter
_FRAME_MS = 120
_GIF_SIZE = (826, 490)
_GIF_COLORS = 48


async def main() -> None:
    """Have a conversation with a new server, and take the screenshots and the moving picture."""
    with tempfile.TemporaryDirectory() as folder:
        models_dir = load_settings().models_dir
        settings = load_settings(data_dir=Path(folder), models_path=models_dir)
        with running_server(settings) as (url, _):
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=ensure_browser(), args=ARGUMENTS
                )
                page = await browser.new_page(viewport={"width": 1180, "height": 700})
                await page.goto(url.replace("ws://", "http://").replace("/v1/ws", "/"))
                await _converse(page)
                await page.screenshot(path=DOCS / "page.png")
                await page.locator("#open-panel").click()
                notes = page.locator("#layers details", has_text="Notes").locator("li")
                await expect(notes.first).to_be_attached()
                await page.screenshot(path=DOCS / "panel.png")
                await browser.close()


async def _converse(page: Page) -> None:
    await expect(page.locator("#introduce")).to_be_visible()
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    for number, message in enumerate(_MESSAGES[:-1], 1):
        await _say(page, message, number)
    recording = asyncio.create_task(_record(page))
    await _say(page, _MESSAGES[-1], len(_MESSAGES))
    await page.wait_for_timeout(10 * _FRAME_MS)
    recording.cancel()
    await asyncio.wait({recording})


async def _say(page: Page, message: str, number: int) -> None:
    await expect(page.locator("#draft")).to_be_focused()
    await page.keyboard.type(message, delay=_KEY_MS)
    await page.wait_for_timeout(_BEFORE_ENTER_MS)
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion")).to_have_count(number + 1)
    await expect(page.locator("#turns li.user .note").last).to_be_visible()


async def _record(page: Page) -> None:
    """Save what the page shows until cancelled as docs/typing.gif."""
    frames: list[Image.Image] = []
    times_s: list[float] = []
    try:
        while True:
            times_s.append(time.monotonic())
            shot = Image.open(io.BytesIO(await page.screenshot(type="jpeg", quality=95)))
            frames.append(shot.convert("RGB").resize(_GIF_SIZE).quantize(_GIF_COLORS))
            await page.wait_for_timeout(_FRAME_MS)
    finally:
        # As long as each was shown: a screenshot takes its time.
        durations_ms = [round(1000 * (end - start)) for start, end in pairwise(times_s)]
        first, *others = frames[: len(durations_ms)]
        first.save(
            DOCS / "typing.gif", save_all=True, append_images=others, duration=durations_ms, loop=0
        )


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
