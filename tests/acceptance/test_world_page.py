"""The tavern at /world.html, played by two players in two tabs of a real browser."""

import json
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.conftest import PATIENCE, ROOT, StartServer, eventually_async

SECRET = "I hid the silver key under the third step"
SAID = "The mayor sings badly after midnight"
MINDS = ("mara", "bram", "linnet")
_STEP = """new Promise((done) => {
    document.getElementById("room").addEventListener("placed", done, { once: true });
}).then(() => null)"""


def _known(page: Page, mind: str, text: str) -> Locator:
    """What is shown of what a mind knows, as far as it has a text."""
    return page.locator(f"#tavern-{mind} li:not(.undone)", has_text=text)


async def _say(page: Page, text: str) -> None:
    await page.locator("#draft").fill(text)
    await page.locator("#draft").press("Enter")


async def _place(page: Page) -> list[float]:
    """Where Ana stands, as the server knows it."""
    world: dict[str, Any] = await page.evaluate(
        "async () => (await fetch('/v1/worlds/the-lantern')).json()"
    )
    place: list[float] = world["scenes"][0]["positions"]["Ana"]
    return place


async def test_a_tavern_shows_what_each_mind_knows(start: StartServer, browser: Browser) -> None:
    """Whispers, drafts, a save and a rollback; the page itself is the game server."""
    expect.set_options(timeout=1000 * PATIENCE)
    server = await start()
    tabs = await browser.new_context(
        viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
    )
    tabs.set_default_timeout(1000 * PATIENCE)
    problems: list[str] = []
    tabs.on("weberror", lambda error: problems.append(str(error.error)))
    tabs.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    ana, bo = [await tabs.new_page() for _ in range(2)]
    for page, name in ((ana, "Ana"), (bo, "Bo")):
        await page.goto(f"http://127.0.0.1:{server.port}/world.html")
        await expect(page.locator("#me")).to_have_text(name)

    # What one of them saw is what it remembers while the player types.
    await expect(_known(ana, "bram", "black lantern")).to_have_count(1)
    await ana.locator("#draft").press_sequentially("Who had a black lantern mended?")
    await expect(ana.locator("#tavern-bram li.lit")).to_contain_text("black lantern")
    await expect(_known(ana, "mara", "black lantern")).to_have_count(0)
    await expect(_known(ana, "linnet", "black lantern")).to_have_count(0)

    # A whisper reaches those nearby to whom it is said, and nobody else.
    await ana.locator("#to").select_option("tavern-mara")
    await ana.get_by_label("whisper").check()
    await expect(ana.locator("#hint")).to_have_text("Mara is too far away to hear a whisper.")
    await ana.locator("#closer").click()
    await expect(ana.locator("#hint")).to_have_text("Only Mara will know of this.")
    await _say(ana, SECRET)
    for page in (ana, bo):
        await expect(_known(page, "mara", SECRET).first).to_be_visible()
    await expect(_known(ana, "mara", SECRET).first).to_have_class("told whisper fresh")
    assert await _known(ana, "bram", SECRET).count() == 0
    assert await _known(ana, "linnet", SECRET).count() == 0

    # What is said since a save is undone before one's eyes, in either tab.
    await ana.locator("#save").click()
    await expect(ana.locator("#roll-back")).to_be_enabled()
    await ana.get_by_label("shout").check()
    await ana.locator("#to").select_option("")
    await _say(ana, SAID)
    await expect(bo.locator("#said")).to_contain_text(SAID)
    assert await bo.locator("#said", has_text=SECRET).count() == 0
    for mind in MINDS:
        await expect(_known(bo, mind, SAID).first).to_be_visible()
    await ana.locator("#roll-back").click()
    for page in (ana, bo):
        await expect(page.locator("#said", has_text=SAID)).to_have_count(0)
        for mind in MINDS:
            await expect(_known(page, mind, SAID)).to_have_count(0)
        await expect(_known(page, "mara", SECRET).first).to_be_visible()

    # Nor does an answer know of it.
    await ana.locator("#to").select_option("tavern-linnet")
    await _say(ana, "Who sings badly after midnight?")
    answer = ana.locator("#said li:not(.waiting)", has_text="Linnet shouts to you")
    await expect(answer).to_have_count(1)
    assert "mayor" not in await answer.inner_text()
    assert problems == []
    await tabs.close()


@pytest.mark.parametrize(("locale", "language"), [("de-AT", "de"), ("ja-JP", "ja")])
async def test_the_tavern_is_in_the_browsers_language(
    start: StartServer, browser: Browser, locale: str, language: str
) -> None:
    """What the page says is; what the characters say is not."""
    expect.set_options(timeout=1000 * PATIENCE)
    server = await start()
    texts = json.loads((ROOT / f"client_demo/languages/{language}.json").read_text("utf-8"))
    page = await browser.new_page(locale=locale)
    await page.goto(f"http://127.0.0.1:{server.port}/world.html")
    await expect(page.locator("html")).to_have_attribute("lang", language)
    await expect(page.locator("h1")).to_have_text(texts["tavern.name"])
    await expect(page.locator("#player")).to_have_text(
        texts["tavern.player"].replace("{name}", "Ana")
    )
    await expect(page.locator("#tavern-bram h2")).to_contain_text(texts["tavern.trade.smith"])
    seen = page.locator("#tavern-bram li", has_text="black lantern")
    await expect(seen.locator(".how")).to_have_text(texts["tavern.how.seen"])
    await page.locator("input[value=whisper]").check()
    await expect(page.locator("#hint")).to_have_text(texts["tavern.hint.whom"])
    await page.locator("input[value=shout]").check()
    await page.locator("#to").select_option("tavern-mara")
    await _say(page, SAID)
    manner = texts["tavern.you.shout"].replace("{whom}", "Mara")
    await expect(page.locator("#said b").first).to_contain_text(manner)
    await page.close()


async def test_arrow_keys_walk_except_while_something_is_typed(
    start: StartServer, browser: Browser
) -> None:
    """From anywhere else on the page, which is not scrolled."""
    expect.set_options(timeout=1000 * PATIENCE)
    server = await start()
    page = await browser.new_page(viewport={"width": 800, "height": 500}, reduced_motion="reduce")
    await page.goto(f"http://127.0.0.1:{server.port}/world.html")
    await expect(page.locator("#tavern-linnet li").first).to_be_visible()
    begin = await _place(page)
    await page.evaluate("document.body.style.minHeight = '200vh'")

    async def has_walked() -> bool:
        return (await _place(page))[0] > begin[0]

    for key in ("ArrowDown", "ArrowRight"):
        await page.keyboard.down(key)
        await page.evaluate(_STEP)
        await page.keyboard.up(key)
    await eventually_async(has_walked)
    assert await page.evaluate("scrollY") == 0
    there = await _place(page)
    await page.locator("#draft").fill("ab")
    for field in ("#draft", "input[value=say]"):
        await page.locator(field).focus()
        async with page.expect_response("**/v1/worlds/the-lantern"):  # it goes on meanwhile
            await page.keyboard.down("ArrowLeft")
        await page.keyboard.up("ArrowLeft")
    assert await page.locator("#draft").evaluate("(draft) => draft.selectionStart") == 1
    await expect(page.locator("input[value=whisper]")).to_be_checked()
    assert await _place(page) == there
    await page.close()
