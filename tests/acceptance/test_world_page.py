"""The tavern at /world.html, played by two players in two tabs of a real browser."""

from playwright.async_api import Browser, Locator, Page, expect

from tests.conftest import PATIENCE, StartServer

SECRET = "I hid the silver key under the third step"
SAID = "The mayor sings badly after midnight"
MINDS = ("mara", "bram", "linnet")


def _known(page: Page, mind: str, text: str) -> Locator:
    """What is shown of what a mind knows, as far as it has a text."""
    return page.locator(f"#tavern-{mind} li:not(.undone)", has_text=text)


async def _say(page: Page, text: str) -> None:
    await page.locator("#draft").fill(text)
    await page.locator("#draft").press("Enter")


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
