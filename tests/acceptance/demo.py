"""What a player does on the demo page."""

from playwright.async_api import Page, expect

from tests.acceptance.test_restart import Process
from tests.conftest import RunningServer, StartServer, eventually_async

SAID = "I promise to name my boat Zephyrine"
ASKED = "What will I name my boat?"


async def opened(
    start: StartServer, page: Page, *, sample: bool = False, **settings: object
) -> RunningServer:
    """Start a server, open its page and enter a name; return the server.

    Args:
        sample: whether to begin with the sample past.
    """
    server = await start(**settings)
    await enter(page, server, sample=sample)
    return server


async def enter(page: Page, server: RunningServer | Process, *, sample: bool = False) -> None:
    """Open the page for the first time and enter a name, with the keyboard alone.

    Args:
        sample: whether to begin with the sample past.
    """
    await page.goto(f"http://127.0.0.1:{server.port}/")
    await expect(page.locator("#introduce")).to_be_visible()
    if not sample:
        await page.keyboard.press("Tab")
        await page.keyboard.press("Space")
        await page.keyboard.press("Shift+Tab")
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    await expect(page.locator("#draft")).to_be_focused()


async def say(page: Page, text: str) -> None:
    """Type with a pause in the middle, check the status lamp, press Enter."""
    lamp = page.locator("#lamp")
    half = len(text) // 2
    await page.keyboard.type(text[:half], delay=10)
    await expect(lamp).to_have_attribute("data-state", "ready")
    await record_lamp_states(page)
    await page.keyboard.type(text[half:], delay=10)
    await lamp_was(page, "listening")
    await expect(lamp).to_have_attribute("data-state", "ready")
    await page.keyboard.press("Enter")


async def lamp_was(page: Page, state: str) -> None:
    """Wait until the lamp has had a state since it is recorded."""

    async def is_recorded() -> bool:
        # A function that the page itself repeats would be made of text there, which it forbids.
        return bool(await page.evaluate(f"window.states.includes('{state}')"))

    await eventually_async(is_recorded)


async def record_lamp_states(page: Page) -> None:
    """Record every state of the lamp from here on: some last for a moment only."""
    await page.evaluate(
        "window.states = []; new MutationObserver(([{ target }]) => "
        "window.states.push(target.dataset.state)).observe("
        "document.getElementById('lamp'), { attributeFilter: ['data-state'] })"
    )
