"""How the page is laid out, and what it shows of what it does, in a real browser."""

import pytest
from playwright.async_api import Page, expect

from foremind.domain.companion import CompanionFile
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.demo import (
    ASKED,
    SAID,
    enter,
    opened,
    say,
)
from tests.conftest import StartServer

_COLOUR = "(bulb) => getComputedStyle(bulb).backgroundColor"
_TROUBLE = "rgb(164, 55, 42)"
_ROOM_FOR_HINT = """(input) => {
  const style = getComputedStyle(input);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font;
  const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight) + 20; // its cross
  return [input.clientWidth - padding, pen.measureText(input.placeholder).width];
}"""
_MARKUP = """*She nods.* I **know** `x` [map](https://example.org/map)

- salt
- [bad](javascript:alert(1))

```
<b>code</b>
```
<img src=x onerror=alert(1)>"""


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1280, 720), (1920, 1080)])
async def test_how_leaves_the_memories_their_place(
    start: StartServer,
    page: Page,
    width: int,
    height: int,
) -> None:
    """Neither is laid over the other."""
    await page.set_viewport_size({"width": width, "height": height})
    await opened(start, page, sample=True)
    await page.locator("#suggestions button").first.click()
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    await page.keyboard.press("Enter")
    await page.locator("#how summary").click()
    await expect(page.locator("#timeline dt", has_text="first word")).to_be_attached()
    story = await page.locator("#story").bounding_box()
    recalled = await page.locator("#recalled").bounding_box()
    assert story is not None
    assert recalled is not None
    assert story["y"] + story["height"] <= recalled["y"] + 1
    assert recalled["height"] >= 200
    await expect(page.locator("#memories li").first).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1920, 1080), (390, 844)])
async def test_many_companions_leave_the_head_of_the_page_readable(
    start: StartServer, page: Page, width: int, height: int
) -> None:
    """The search says what it is, the name is whole, a face can be chosen, the menu is one line."""
    await page.set_viewport_size({"width": width, "height": height})
    server = await start()
    for number in range(12):
        slug = f"companion-{number}"
        await server.app.core.stores.companions.put(CompanionFile(slug, f"Someone {number}", "x"))
    await enter(page, server)
    search, name = page.locator("#faces-search"), page.locator("#companion")
    await expect(search).to_be_visible()
    room, needed = await search.evaluate(_ROOM_FOR_HINT)
    assert needed <= room
    shown, needed = await name.evaluate("(name) => [name.clientWidth, name.scrollWidth]")
    assert needed <= shown
    await expect(page.locator("#faces button:not([hidden])").first).to_be_in_viewport(ratio=1)
    heights = await page.locator(".menu > *").evaluate_all(
        "(all) => all.map((a) => a.offsetHeight)"
    )
    assert max(heights) < 48
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, 390])
async def test_a_phone_has_room_for_the_name_beside_a_few_faces(
    start: StartServer, page: Page, width: int
) -> None:
    """The faces are scrolled, and the chosen one is in view."""
    await page.set_viewport_size({"width": width, "height": 800})
    server = await start()
    for number in range(6):
        file = CompanionFile(f"one-{number}", "Wren", "x")
        await server.app.core.stores.companions.put(file)
    await page.goto(f"http://127.0.0.1:{server.port}/?companion=one-5")
    await expect(page.locator("#introduce")).to_be_visible()
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    chosen = page.locator("#faces [aria-pressed=true]")
    await expect(chosen).to_be_in_viewport(ratio=1)
    shown, needed = await page.locator("#companion").evaluate(
        "(name) => [name.clientWidth, name.scrollWidth]"
    )
    assert needed <= shown
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_the_lamp_is_red_only_once_nothing_more_is_tried(
    start: StartServer,
    page: Page,
) -> None:
    """Not while the page connects."""
    server = await start()
    await page.goto(f"http://127.0.0.1:{server.port}/")
    lamp, bulb = page.locator("#lamp"), page.locator("#lamp .bulb")
    await expect(lamp).to_have_attribute("data-state", "away")
    assert await bulb.evaluate(_COLOUR) != _TROUBLE
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    await expect(lamp).to_have_attribute("data-state", "idle")
    for session in server.app.registry._all():
        session.client.disconnect(4409, "opened elsewhere")
    await expect(lamp).to_have_attribute("data-state", "closed")
    assert await bulb.evaluate(_COLOUR) == _TROUBLE


async def test_a_page_that_edits_says_so_until_it_does_not(
    start: StartServer,
    page: Page,
) -> None:
    """Esc leaves the message as it was, and the next one stands after it."""
    await opened(start, page)
    await say(page, SAID)
    own = page.locator("#turns li.user")
    await expect(own.locator(".note")).to_have_text("remembered")
    await page.get_by_role("button", name="Edit your last message").click()
    editing, edited = page.locator("#editing"), page.locator("#turns li.edited")
    await expect(editing).to_contain_text("You are editing your last message.")
    await expect(edited.locator(".text")).to_have_text(SAID)
    await page.keyboard.press("Escape")
    await expect(editing).to_be_hidden()
    await expect(edited).to_have_count(0)
    await expect(page.locator("#draft")).to_have_value("")
    await page.keyboard.type("And one more thing")
    await page.keyboard.press("Enter")
    await expect(own.locator(".text")).to_have_text([SAID, "And one more thing"])


async def test_a_phone_has_a_menu_at_each_turn(
    start: StartServer,
    page: Page,
) -> None:
    """And says with whom one speaks."""
    await page.set_viewport_size({"width": 390, "height": 844})
    await opened(start, page)
    await say(page, SAID)
    own = page.locator("#turns li.user")
    await expect(own.locator(".note")).to_have_text("remembered")
    await expect(page.locator("#companion")).to_be_in_viewport(ratio=1)
    forget = own.get_by_role("button", name="Forget what was said")
    await expect(forget).to_be_hidden()
    menu = own.get_by_role("button", name="What can be done with it")
    await menu.click()
    await expect(menu).to_have_attribute("aria-expanded", "true")
    await expect(forget).to_be_visible()
    await expect(own.get_by_role("button", name="Edit your last message")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_a_memory_flies_to_the_reply_that_used_it(
    start: StartServer,
    page: Page,
) -> None:
    """And both stay marked; one that was not used stays where it is."""
    await opened(start, page, sample=True)
    await page.locator("#suggestions button").first.click()
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    await page.evaluate(
        "window.flights = 0; new MutationObserver((changes) => changes.forEach(({ addedNodes }) => "
        "addedNodes.forEach((node) => { if (node.className === 'flight') window.flights += 1; })))"
        ".observe(document.body, { childList: true })"
    )
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion .note").last).to_contain_text("used")
    used = page.locator("#memories li.used")
    await expect(used.first).to_contain_text("Zephyrine")
    assert await page.evaluate("window.flights") == await used.count()
    await expect(page.locator(".flight")).to_have_count(0)


async def test_a_reply_is_shown_as_markdown_and_nothing_in_it_as_markup(
    start: StartServer,
    page: Page,
) -> None:
    """Also while it grows; it is copied and forgotten as it was written."""
    script = Script(reply=lambda _: [*_MARKUP], background=lambda _: "{}")
    async with scripted_model(script) as model:
        await opened(start, page, llm_url=model.url)
        await page.keyboard.type("Hello **you**")
        await page.keyboard.press("Enter")
        reply = page.locator("#turns li.companion").last
        await expect(reply.locator("pre code")).to_have_text("<b>code</b>")
        await expect(reply).to_have_attribute("aria-busy", "false")
        for tag, text in (("em", "She nods."), ("strong", "know"), ("p code", "x")):
            await expect(reply.locator(tag)).to_have_text(text)
        await expect(reply.locator("ul li")).to_have_text(["salt", "[bad](javascript:alert(1))"])
        await expect(reply.locator("a")).to_have_attribute("href", "https://example.org/map")
        await expect(reply).to_contain_text("<img src=x onerror=alert(1)>")
        assert await page.locator("#turns img, #turns b").count() == 0
        await expect(page.locator("#turns li.user .text")).to_have_text("Hello **you**")
        assert await reply.locator(".text").evaluate("(text) => text.source") == _MARKUP


async def test_the_prompt_is_shown_as_the_model_would_be_given_it(
    start: StartServer,
    page: Page,
) -> None:
    """For the draft, with the reason why each memory is in it, and the weights in force."""
    await opened(start, page, vector_weight=0.6, keyword_weight=0.4)
    await say(page, SAID)
    await expect(page.locator("#turns li.user .note")).to_have_text("remembered")
    await page.keyboard.type(ASKED)
    await page.get_by_role("button", name="See the prompt").click()
    shown = page.locator("#inspected")
    await expect(page.locator("#inspected-text")).to_contain_text(ASKED)
    await expect(shown.locator("li span")).to_have_text(SAID)
    await expect(shown.locator("li small")).to_contain_text("shares words")
    await expect(shown).to_contain_text("Closeness in meaning counts 60%, shared words 40%.")
    await expect(shown.locator("pre").first).to_contain_text("Between tags such as <memories>")
    await expect(shown.locator("pre").last).to_contain_text(ASKED)
    await page.keyboard.press("Escape")
    await expect(page.locator("#inspector")).to_be_hidden()
    await expect(page.locator("#draft")).to_have_value(ASKED)
