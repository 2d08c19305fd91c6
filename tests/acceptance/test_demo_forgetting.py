"""What the page shows after an erasure, and after a connection that ends for good, in a browser."""

import json

from playwright.async_api import Browser, Page, WebSocketRoute, expect

from foremind.gateway.session_client import NOT_ALLOWED
from tests.acceptance.demo import (
    ASKED,
    SAID,
    enter,
    opened,
    say,
)
from tests.conftest import RunningServer, StartServer, owner_of

_TEXT = "Do you know me?"


async def recalling(start: StartServer, page: Page) -> RunningServer:
    """Say something and ask about it, so that it is recalled; return the server."""
    server = await opened(start, page)
    for text in (SAID, ASKED):
        await say(page, text)
    await expect(page.locator("#memories li")).to_have_count(1)
    await expect(page.locator("#turns li.user .note")).to_have_count(2)
    return server


async def test_whoever_erased_everything_may_begin_anew(
    start: StartServer,
    page: Page,
) -> None:
    """Nothing is left on the page; what is typed then is kept for the next beginning."""
    server = await recalling(start, page)
    await page.click("#open-panel")
    await expect(page.locator("#layers")).to_contain_text("Zephyrine")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.click("#erase-user")
    await expect(page.locator("#panel")).to_be_hidden()
    await expect(page.locator("#notice")).to_contain_text(
        "Erased for good: 1 companion, 2 memories,"
    )
    for parts in ("#turns li", "#memories li"):
        await expect(page.locator(parts)).to_have_count(0)
    await expect(page.locator("#recalled-for")).to_have_text("Nothing recalled yet")
    users = "SELECT count(*) FROM users WHERE name = $1"
    assert await owner_of(server.app.core).fetchval(users, "Ana") == 0
    await page.locator("#draft").press_sequentially(_TEXT)
    await page.keyboard.press("Enter")
    await expect(page.locator("#draft")).to_have_value(_TEXT)
    await expect(page.locator("#turns li")).to_have_count(0)
    await expect(page.locator("#lamp")).to_have_text("not connected")
    await expect(page.get_by_role("button", name="Begin anew")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#name")).to_have_value("")
    await page.locator("#name").fill("Bea")
    await page.locator("#sample").uncheck()
    await page.get_by_role("button", name="Begin", exact=True).click()
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    await page.locator("#draft").press("Enter")
    await expect(page.locator("#turns li.user .note")).to_be_visible()
    await expect(page.locator("#turns li.user .text")).to_have_text(_TEXT)
    assert await owner_of(server.app.core).fetchval(users, "Bea") == 1


async def test_an_erasure_elsewhere_leaves_nothing_on_the_page(
    start: StartServer,
    page: Page,
) -> None:
    """Such as by an operator; the next user of the browser is another one."""
    server = await opened(start, page)
    await say(page, SAID)
    await expect(page.locator("#turns .note")).to_contain_text("remembered")
    user = await owner_of(server.app.core).fetchval("SELECT external_id FROM users")
    await page.request.delete(f"http://127.0.0.1:{server.port}/v1/users/{user}?user={user}")
    await expect(page.locator("#notice")).to_contain_text("Everything about you was erased.")
    await expect(page.locator("#turns li")).to_have_count(0)
    await page.reload()
    await expect(page.locator("#introduce")).to_be_visible()


async def test_what_is_forgotten_in_the_panel_disappears_from_the_page(
    start: StartServer,
    page: Page,
) -> None:
    """From the conversation and from what is recalled, with the panel still open."""
    await recalling(start, page)
    await expect(page.locator("#turns li.user .note")).to_have_count(2)
    await page.click("#open-panel")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.click("#forget-all")
    await expect(page.locator("#panel-notice")).to_contain_text("Forgotten for good: 2 memories,")
    await expect(page.locator("#panel")).to_be_visible()
    await expect(page.locator("#turns li.user")).to_have_count(0)
    await expect(page.locator("#memories li")).to_have_count(0)
    await expect(page.locator("#recalled-for")).to_have_text("Nothing recalled yet")


async def test_a_message_that_could_not_be_sent_is_in_the_draft_again(
    start: StartServer,
    page: Page,
) -> None:
    """When the server closes the connection for good before it has the message."""
    server = await start()
    closed: list[str] = []

    async def serve(route: WebSocketRoute) -> None:
        upstream = route.connect_to_server()

        async def forward(message: str | bytes) -> None:
            if json.loads(message)["type"] == "message.send" and not closed:
                closed.append(str(message))
                await route.close(code=NOT_ALLOWED, reason="closed by the operator")
            else:
                upstream.send(message)

        route.on_message(forward)

    await page.route_web_socket("**/v1/ws", serve)
    await enter(page, server)
    await say(page, _TEXT)
    await expect(page.locator("#notice")).to_contain_text("closed by the operator")
    await expect(page.locator("#draft")).to_have_value(_TEXT)
    await expect(page.locator("#turns li.user")).to_have_count(0)
    await page.locator("#draft").press("Enter")
    await expect(page.locator("#draft")).to_have_value(_TEXT)
    await page.get_by_role("button", name="Connect again").click()
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    await page.locator("#draft").press("Enter")
    await expect(page.locator("#turns li.user .text")).to_have_text(_TEXT)
    await expect(page.locator("#turns li.user .note")).to_be_visible()


async def test_the_panel_says_that_the_server_cannot_be_reached(
    start: StartServer,
    browser: Browser,
) -> None:
    """Also when something is to be forgotten or saved; nothing is lost, nor left uncaught."""
    server = await start()
    page = await browser.new_page()  # whose console reports the lost requests
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    await enter(page, server)
    await say(page, SAID)
    await expect(page.locator("#turns .note")).to_contain_text("remembered")
    await page.route("**/v1/relationships/**", lambda route: route.abort())
    await page.click("#open-panel")
    told = "That failed: the server cannot be reached"
    await expect(page.locator("#panel-notice")).to_have_text(told)
    await page.get_by_label("Forget everything about").fill("Zephyrine")
    await page.locator("#forget-about button").click()
    await expect(page.locator("#panel-notice")).to_have_text(told)
    await page.get_by_label("What to save").fill("The gate code is 4711")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#panel-notice")).to_have_text(told)
    await expect(page.get_by_label("What to save")).to_have_value("The gate code is 4711")
    await page.locator("#close-panel").click()
    reply = page.locator("#turns li.companion").last
    await reply.get_by_role("button", name="Forget what was said").press("Enter")
    await page.get_by_role("button", name="Forget now").click()
    await expect(page.locator("#notice")).to_have_text(told)
    await expect(reply).to_be_visible()
    assert problems == []
