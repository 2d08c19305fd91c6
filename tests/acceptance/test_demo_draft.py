"""What the page says of a draft and of what was sent, and what stays in view, in a real browser."""

import asyncio
import json

import msgspec
import pytest
from playwright.async_api import Page, WebSocketRoute, expect

from foremind.app.configuration import read_companion
from tests.acceptance.demo import (
    SAID,
    enter,
    opened,
    say,
)
from tests.acceptance.test_demo_story import EXAMPLES
from tests.conftest import PATIENCE, StartServer

_LINES = "texts => texts.map((text) => text.getClientRects().length)"


async def test_a_text_that_is_too_long_is_kept_and_said_to_be(
    start: StartServer,
    page: Page,
) -> None:
    """Before it is sent; characters count as on the server."""
    await opened(start, page, max_text_chars=50)
    draft, told = page.locator("#draft"), page.locator("#too-long")
    await draft.fill("x" * 51)
    await expect(told).to_contain_text("51 characters; the limit is 50")
    await draft.press("Enter")
    await expect(draft).to_have_value("x" * 51)
    await expect(page.locator("#turns li.user")).to_have_count(0)
    await draft.fill("😀" * 50)
    await expect(told).to_be_hidden()
    await draft.press("Enter")
    await expect(page.locator("#turns li.user .text")).to_have_text("😀" * 50)
    await expect(page.locator("#turns li.user .note")).to_be_visible()


async def test_keys_of_an_input_method_send_nothing(
    start: StartServer,
    page: Page,
) -> None:
    """Enter chooses a word there; Safari reports the last one after the composition."""
    await opened(start, page)
    draft = page.locator("#draft")
    await draft.fill("にほん")
    for key in ({"isComposing": True}, {"keyCode": 229}, {"isComposing": True, "keyCode": 229}):
        await draft.dispatch_event("keydown", {"key": "Enter", "bubbles": True, **key})
        await expect(draft).to_have_value("にほん")
    await expect(page.locator("#turns li.user")).to_have_count(0)
    await draft.press("Enter")
    await expect(page.locator("#turns li.user .text")).to_have_text("にほん")


async def test_a_form_cuts_nothing_off(start: StartServer, page: Page) -> None:
    """It says what is too long instead."""
    await opened(start, page)
    await page.click("#open-panel")
    field = page.get_by_label("What to save")
    await field.fill("x" * 2001)
    await page.get_by_role("button", name="Save").click()
    await expect(field).to_have_value("x" * 2001)
    assert "2,001 characters" in await field.evaluate("(field) => field.validationMessage")
    await field.fill("x" * 2000)
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#panel-notice")).to_have_text("Done.")


async def test_what_the_server_had_prepared_is_not_said_to_be_late(
    start: StartServer,
    page: Page,
) -> None:
    """Where the page heard of it only after Enter, as on a busy machine."""

    ready = asyncio.Event()

    async def serve(route: WebSocketRoute) -> None:
        upstream = route.connect_to_server()

        def hold_back(message: str | bytes) -> None:
            event = json.loads(message)
            if event["type"] != "context.ready":
                route.send(message)
            elif event["draft"] == SAID:
                ready.set()

        upstream.on_message(hold_back)

    await page.route_web_socket("**/v1/ws", serve)
    await opened(start, page)
    await page.keyboard.type(SAID, delay=10)
    await asyncio.wait_for(ready.wait(), PATIENCE)
    await page.keyboard.press("Enter")
    await expect(page.locator("#lead")).to_have_attribute("data-state", "begun")


async def test_another_reply_leaves_what_was_measured(
    start: StartServer,
    page: Page,
) -> None:
    """It says nothing about what was prepared before Enter."""
    await opened(start, page)
    await say(page, SAID)
    await expect(page.locator("#turns li.user .note")).to_be_visible()
    await page.get_by_role("button", name="Another reply").click()
    await expect(page.locator("#turns .which")).to_have_text("2/2")
    await expect(page.locator("#lead")).to_have_attribute("data-state", "ahead")
    await expect(page.locator("#summary")).to_contain_text("before Enter (all of it prepared)")


@pytest.mark.parametrize("width", [375, 1200])
async def test_a_short_line_is_not_broken(
    start: StartServer,
    page: Page,
    width: int,
) -> None:
    """Neither a greeting nor a message."""
    await page.set_viewport_size({"width": width, "height": 760})
    server = await start()
    wren = msgspec.structs.replace(read_companion(EXAMPLES / "wren.toml"), greeting="Hello")
    await server.app.core.stores.companions.put(wren)
    await enter(page, server)
    await page.locator("#draft").fill("Hello")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.user .note")).to_be_visible()
    texts = page.locator("#turns .text", has_text="Hello")
    await expect(texts).to_have_count(2)
    assert await texts.evaluate_all(_LINES) == [1, 1]


async def test_a_small_phone_shows_the_question_with_its_answer(
    start: StartServer,
    page: Page,
) -> None:
    """And all that was measured."""
    await page.set_viewport_size({"width": 375, "height": 667})
    await opened(start, page, sample=True)
    await page.locator("#draft").press_sequentially(
        "What is my boat called, the one that I keep in the old harbour?", delay=10
    )
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion").last).to_contain_text("Zephyrine")
    for part in ("#turns li.user .text", "#lead-text", "#draft"):
        await expect(page.locator(part).last).to_be_in_viewport(ratio=1)
    reply = page.locator("#turns li.companion .text").last
    await expect(reply).to_be_in_viewport(ratio=0.5)
