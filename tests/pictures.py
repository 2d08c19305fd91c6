"""Take the pictures of the demo page and of the tavern for the documentation: `make pictures`."""

import asyncio
import base64
import io
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect

from foremind.app.configuration import load_settings
from foremind_eval.processes.server_process import running_server
from tests.browser import ARGUMENTS, ensure_browser

DOCS = Path(__file__).parents[1] / "docs"
_TOLD = "My sister Lena got married last Saturday in Faro"
_ASKED = ("What is my boat called?", "Who got married?")
_KEY_MS = 60
_BEFORE_ENTER_MS = 250  # a typical interval between the last key and Enter
_LOOK_MS = 1500  # how long the moving picture shows what came of a message
_FRAME_S = 0.07  # between two pictures, at least
_GIF_WIDTH = 826
_GIF_COLORS = 128


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
                page = await browser.new_page(
                    viewport={"width": 1180, "height": 700}, locale="en-GB"
                )
                address = url.replace("ws://", "http://").replace("/v1/ws", "/")
                await page.goto(address)
                await _converse(page)
                await page.screenshot(path=DOCS / "page.png")
                await page.locator("#open-panel").click()
                notes = page.locator("#layers details", has_text="Notes").locator("li")
                await expect(notes.first).to_be_attached()
                await page.screenshot(path=DOCS / "panel.png")
                await _play(browser, f"{address}world.html")
                await browser.close()


async def _converse(page: Page) -> None:
    await expect(page.locator("#introduce")).to_be_visible()
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    await expect(page.locator("#suggestions button")).to_have_count(3)
    await _say(page, _TOLD)
    async with _recording(page, "typing.gif"):
        for question in _ASKED:
            await page.wait_for_timeout(_LOOK_MS / 2)
            await _say(page, question)
            await page.wait_for_timeout(_LOOK_MS)


async def _say(page: Page, message: str) -> None:
    await expect(page.locator("#draft")).to_be_focused()
    await page.keyboard.type(message, delay=_KEY_MS)
    await page.wait_for_timeout(_BEFORE_ENTER_MS)
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.user .note").last).to_be_visible()


async def _play(browser: Browser, address: str) -> None:
    """Play the tavern: what one saw, a whisper, a save and a rollback."""
    tabs = await browser.new_context(viewport={"width": 1040, "height": 680}, locale="en-GB")
    page, other = [await tabs.new_page() for _ in range(2)]
    for tab in (page, other):
        await tab.goto(address)
        await expect(tab.locator("#tavern-linnet li").first).to_be_visible()
    await page.bring_to_front()
    async with _recording(page, "world.gif"):
        await page.wait_for_timeout(_LOOK_MS / 2)
        await _speak(page, "Bram, who had a black lantern mended?")
        await page.locator("#to").select_option("tavern-mara")
        await page.get_by_label("whisper").check()
        await page.locator("#closer").click()
        await expect(page.locator("#closer")).to_be_hidden()
        await _speak(page, "I hid the silver key under the stair")
        await page.locator("#save").click()
        await page.get_by_label("shout").check()
        await page.locator("#to").select_option("")
        await _speak(page, "The mayor sings badly, Bram")
        await page.locator("#roll-back").click()
        await page.wait_for_timeout(2 * _LOOK_MS)
    await tabs.close()


async def _speak(page: Page, message: str) -> None:
    await page.locator("#draft").press_sequentially(message, delay=_KEY_MS)
    await page.wait_for_timeout(_LOOK_MS / 2)
    await page.keyboard.press("Enter")
    await page.wait_for_timeout(2 * _LOOK_MS)


@asynccontextmanager
async def _recording(page: Page, name: str) -> AsyncIterator[None]:
    """Save what the page shows meanwhile as a file in docs/."""
    shots: list[tuple[float, bytes]] = []
    chromium = await page.context.new_cdp_session(page)

    def take(frame: dict[str, Any]) -> None:
        moment = frame["metadata"]["timestamp"]
        if not shots or moment - shots[-1][0] >= _FRAME_S:
            shots.append((moment, base64.b64decode(frame["data"])))
        acknowledged.append(
            asyncio.ensure_future(
                chromium.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})
            )
        )

    acknowledged: list[asyncio.Future[Any]] = []
    chromium.on("Page.screencastFrame", take)
    await chromium.send("Page.startScreencast", {"format": "png"})
    yield
    await chromium.send("Page.stopScreencast")
    await asyncio.wait(acknowledged)
    _save(shots, DOCS / name)


def _save(shots: Sequence[tuple[float, bytes]], path: Path) -> None:
    pictures = [_smaller(Image.open(io.BytesIO(shot)).convert("RGB")) for _, shot in shots]
    # One palette, and no dithering: what does not change from frame to frame costs nothing.
    palette = pictures[-1].quantize(_GIF_COLORS, method=Image.Quantize.FASTOCTREE)
    still = Image.Dither.NONE
    first, *others = [picture.quantize(palette=palette, dither=still) for picture in pictures]
    durations_ms = [round(1000 * (end - start)) for (start, _), (end, _) in pairwise(shots)]
    first.save(
        path,
        save_all=True,
        append_images=others,
        duration=[*durations_ms, _LOOK_MS],
        loop=0,
    )


def _smaller(picture: Image.Image) -> Image.Image:
    height = round(_GIF_WIDTH * picture.height / picture.width)
    return picture.resize((_GIF_WIDTH, height), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
