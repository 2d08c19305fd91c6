"""What the page shows to somebody who sees it for the first time, in a real browser."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from foremind.app.configuration import read_companion
from foremind.app.server import serving
from foremind.domain.settings.settings import Settings
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.demo import (
    SAID,
    enter,
    opened,
    say,
)
from tests.conftest import PATIENCE, ROOT, RunningServer, StartServer, eventually_async, owner_of

EXAMPLES = ROOT / "server" / "foremind" / "examples"
SAMPLES = ROOT / "client_demo" / "samples"
#: What is to be recalled first for each question that the page suggests.
ANSWERS = {
    "What is my boat called?": "Zephyrine",
    "What did I promise my father?": "Madeira",
    "What can't I eat?": "shellfish",
    "What helps me sleep?": "valerian",
    "Who grew lavender?": "Inès",
    "What is my new job?": "nurse",
    "What is my novel about?": "under the ice",
    "Who is my heroine?": "Maren",
    "What do I regret?": "violin",
    "What is my dog afraid of?": "thunder",
    "What am I training for?": "marathon",
    "Who thinks I am mad?": "Tom",
}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_AT_ONCE = """([id, text]) => {
    const draft = document.getElementById(id);
    draft.value = text;
    draft.dispatchEvent(new Event("input"));
    draft.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
}"""
_RECORD_ANNOUNCEMENTS = """() => {
    window.announced = [];
    for (const region of document.querySelectorAll("[role=status], [role=log], [aria-live]")) {
        const note = () => window.announced.push(region.id);
        const changes = { childList: true, characterData: true, subtree: true };
        new MutationObserver(note).observe(region, changes);
    }
}"""


async def count(server: RunningServer, query: str) -> int:
    """Return the number that a query counts, past row-level security."""
    return int(await owner_of(server.app.core).fetchval(query))


async def test_what_people_feel_is_told_in_one_number(
    start: StartServer,
    page: Page,
) -> None:
    """From Enter to the first word of a language model; the stand-in is none."""
    await opened(start, page)
    lead, number = page.locator("#lead"), page.locator("#lead-ms")
    await expect(lead).to_have_attribute("data-state", "invitation")
    await expect(page.locator("#how")).to_be_hidden()
    await page.keyboard.type(SAID, delay=10)
    await expect(lead).to_have_attribute("data-state", "ready")
    await page.keyboard.press("Enter")
    await expect(lead).to_have_attribute("data-state", "ahead")
    await expect(lead).to_contain_text("ready before you pressed Enter")
    await expect(page.locator("#turns li.user .note")).to_be_visible()
    await expect(number).to_be_hidden()
    await expect(page.locator("#race")).to_be_hidden()
    await expect(page.locator("#timeline")).to_be_hidden()
    await page.locator("#how summary").click()
    await expect(page.locator("#timeline")).to_be_visible()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (768, 1024), (390, 844)])
async def test_somebody_who_was_told_nothing_is_told_what_this_is_and_what_to_try(
    start: StartServer, page: Page, width: int, height: int
) -> None:
    """Before a name is asked for, before anything is typed, and after the first answer."""
    await page.set_viewport_size({"width": width, "height": height})
    server = await start()
    await page.goto(f"http://127.0.0.1:{server.port}/")
    what = page.locator("#introduce p").first
    await expect(what).to_be_visible()
    await expect(what).to_contain_text("Foremind gives characters in games a memory.")
    await page.keyboard.type("Ana")
    await page.keyboard.press("Enter")
    about = page.locator("#lead-about")
    await expect(about).to_contain_text("it searches all that you ever told Wren. Try a question")
    await expect(about).to_be_in_viewport(ratio=1)
    await page.locator("#suggestions button").first.click()
    await expect(about).to_contain_text("is found already. Press Enter")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion .note")).to_be_visible()
    await expect(about).to_contain_text("Next: say something about yourself")
    await expect(about).to_be_in_viewport(ratio=1)
    await page.reload()
    await expect(page.locator("#suggestions button")).to_have_count(2)


async def test_a_message_sent_before_anything_was_ready_is_not_praised(
    start: StartServer,
    page: Page,
) -> None:
    """It says so."""
    await opened(start, page)
    await page.evaluate(_AT_ONCE, ["draft", SAID])
    await expect(page.locator("#turns li.user .note")).to_have_text("remembered")
    await expect(page.locator("#lead")).to_have_attribute("data-state", "late")


@pytest.mark.parametrize("text", [SAID, "犬の名前はスカウトです。"])
async def test_the_same_question_is_raced_to_its_first_word(
    start: StartServer, page: Page, text: str
) -> None:
    """With preparation and without, by nobody, of whom nothing is left; no text is asked twice."""
    script = Script(reply=lambda _: ["Of ", "course."], background=lambda _: "{}")
    async with scripted_model(script) as model:
        server = await opened(start, page, llm_url=model.url, llm_model="tiny", llm_ahead="prefill")
        await say(page, text)
        await expect(page.locator("#turns li.user .note")).to_be_visible()
        await expect(page.locator("#lead-ms")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
        await page.get_by_role("button", name="Race it").click()
        about = page.locator("#race-about")
        await expect(about).to_contain_text("tiny, asked from this machine")
        await expect(about).to_contain_text("The median of 3 rounds, measured in this browser")
        await expect(page.locator("#lanes dt")).to_have_text(
            ["without preparation", re.compile("^prepared while typed: recalled")]
        )
        await expect(page.locator("#lanes .ms")).to_have_text([re.compile(r"^[\d.]+ m?s$")] * 2)
        asked = [chat["messages"][-1]["content"] for chat in script.player_requests]
        assert len(asked) == 2 + 2 * 3  # the question, how the race begins, and the rounds
        rounds = {tuple(asked[first : first + 2]) for first in (2, 4, 6)}
        assert all(unprepared == prepared for unprepared, prepared in rounds)
        assert len(rounds | {(asked[0], asked[0])}) == 4

        async def is_erased() -> bool:
            return await count(server, "SELECT count(*) FROM users") == 1

        await eventually_async(is_erased)
        await page.keyboard.type("So")
        await expect(page.locator("#race")).to_be_hidden()


async def test_a_sample_past_can_be_asked_about_and_erased(
    start: StartServer,
    page: Page,
) -> None:
    """It is marked wherever it is shown, and erasing it leaves what the player said."""
    server = await opened(start, page, sample=True)
    await expect(page.locator("#sample-note")).to_contain_text("made up")
    await expect(page.locator("#turns li.sample")).to_have_count(10)
    suggestions = page.locator("#suggestions button")
    await expect(suggestions).to_have_count(3)
    await suggestions.first.click()
    await expect(page.locator("#draft")).to_have_value("What is my boat called?")
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    recalled = page.locator("#memories li").first
    await expect(recalled).to_contain_text("Zephyrine")
    await expect(recalled.locator("small")).to_have_text("12 days ago · you said it · sample")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion").last).to_contain_text("Zephyrine")
    await expect(suggestions).to_have_count(2)
    await page.get_by_role("button", name="Erase it").click()
    await expect(page.locator("#turns li.sample")).to_have_count(0)
    await expect(page.locator("#turns li.user .text")).to_have_text(["What is my boat called?"])
    await expect(page.locator("#suggestions")).to_be_hidden()
    assert await count(server, "SELECT count(*) FROM memories") == 0
    assert await count(server, "SELECT count(*) FROM turns WHERE content LIKE '%Zephyrine%'") == 0


async def test_companions_have_faces_and_pasts_of_their_own(
    start: StartServer,
    page: Page,
) -> None:
    """A past begins when they meet; a companion without one has a face too."""
    server = await start()
    for example in ("odile", "saffi"):
        await server.app.core.stores.companions.put(read_companion(EXAMPLES / f"{example}.toml"))
    stranger = read_companion(EXAMPLES / "tock.toml")
    stranger = type(stranger)("stranger", "Stranger", stranger.persona)
    await server.app.core.stores.companions.put(stranger)
    await enter(page, server, sample=True)
    await expect(page.locator("#faces button svg.face")).to_have_count(4)
    await expect(page.locator("#companion")).to_have_text("Wren")
    assert await count(server, "SELECT count(*) FROM relationships") == 1
    await page.get_by_role("button", name="Odile").click()
    await expect(page.locator("#companion")).to_have_text("Odile")
    await expect(page.locator("#suggestions button").first).to_have_text("What helps me sleep?")
    await expect(page.locator("#turns li.sample")).to_have_count(8)
    await page.get_by_role("button", name="Stranger").click()
    await expect(page.locator("#companion")).to_have_text("Stranger")
    await expect(page.locator("#turns li")).to_have_count(0)
    await expect(page.locator("#suggestions")).to_be_hidden()


async def test_a_message_is_forgotten_unless_it_is_taken_back_in_time(
    start: StartServer,
    page: Page,
) -> None:
    """Nothing is sent while it can be undone; afterwards it is gone with what came of it."""
    server = await opened(start, page)
    await say(page, SAID)
    own = page.locator("#turns li.user")
    await expect(own.locator(".note")).to_have_text("remembered")
    forget = page.get_by_role("button", name=f"Forget what was said: {SAID}")
    await forget.press("Enter")
    await expect(own).to_be_hidden()
    await expect(page.locator("#undo")).to_contain_text("in 5 seconds")
    assert await count(server, "SELECT count(*) FROM memories") == 1
    await page.get_by_role("button", name="Undo").click()
    await expect(own).to_be_visible()
    await expect(page.locator("#undo")).to_be_hidden()
    assert await count(server, "SELECT count(*) FROM memories") == 1
    await forget.press("Enter")
    await expect(own).to_have_count(0)
    await expect(page.locator("#announcer")).to_have_text("Forgotten for good.")
    assert await count(server, "SELECT count(*) FROM memories") == 0
    assert await count(server, "SELECT count(*) FROM turns WHERE content LIKE '%Zephyrine%'") == 0


async def test_whoever_leaves_the_page_has_a_message_forgotten(
    start: StartServer,
    page: Page,
) -> None:
    """At once: there is nobody left who could take it back."""
    server = await opened(start, page)
    await say(page, SAID)
    await expect(page.locator("#turns li.user .note")).to_have_text("remembered")
    await page.get_by_role("button", name=f"Forget what was said: {SAID}").press("Enter")
    await expect(page.locator("#undo")).to_be_visible()
    await page.reload()

    async def is_forgotten() -> bool:
        return await count(server, "SELECT count(*) FROM memories") == 0

    await eventually_async(is_forgotten)


async def test_a_reply_is_forgotten_by_itself(
    start: StartServer,
    page: Page,
) -> None:
    """Also right after it was given; the message stays."""
    await opened(start, page)
    await say(page, SAID)
    own, replies = page.locator("#turns li.user"), page.locator("#turns li.companion")
    await expect(own.locator(".note")).to_have_text("remembered")
    await replies.last.get_by_role("button", name="Forget what was said").press("Enter")
    await page.get_by_role("button", name="Forget now").click()
    await expect(replies).to_have_count(1)
    await expect(own.locator(".text")).to_have_text(SAID)
    await page.reload()
    await expect(own.locator(".text")).to_have_text(SAID)
    await expect(replies).to_have_count(1)


async def test_a_message_off_the_record_is_not_remembered(
    start: StartServer,
    page: Page,
) -> None:
    """It says so, and the next one is remembered again if the player wants that."""
    server = await opened(start, page)
    off_record = page.get_by_label("Do not remember this")
    await off_record.check()
    await page.locator("#draft").fill("I can't eat shellfish")
    await page.keyboard.press("Enter")
    own = page.locator("#turns li.user")
    await expect(own.first.locator(".note")).to_contain_text("not remembered")
    await expect(own.first).to_have_class(re.compile("off-record"))
    await off_record.uncheck()
    await say(page, SAID)
    await expect(own.last.locator(".note")).to_have_text("remembered")
    owner = owner_of(server.app.core)
    memories = await owner.fetch("SELECT content FROM memories")
    assert [memory["content"] for memory in memories] == [SAID]


async def test_a_phone_keeps_the_draft_and_what_is_recalled_in_view(
    start: StartServer,
    page: Page,
) -> None:
    """However much was said, before Enter and after it."""
    await page.set_viewport_size({"width": 390, "height": 844})
    await opened(start, page, sample=True)
    await page.locator("#suggestions button").first.click()
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    for _ in ("before Enter", "after it"):
        for part in ("#draft", "#send", "#recalled", "#lead-text"):
            await expect(page.locator(part)).to_be_in_viewport(ratio=1)
        await expect(page.locator("#memories li").first).to_be_in_viewport(ratio=0.9)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        assert await page.evaluate("document.documentElement.scrollHeight") <= 844
        await page.keyboard.press("Enter")
        await expect(page.locator("#turns li.companion .note")).to_be_visible()


async def test_screen_readers_are_told_of_states_and_not_of_keys(
    start: StartServer,
    page: Page,
) -> None:
    """Only a pause, and what is said, is worth interrupting for."""
    await opened(start, page, pause_ms=2000)
    await page.evaluate(_RECORD_ANNOUNCEMENTS)
    await page.keyboard.type(SAID, delay=10)
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "ready")
    assert await page.evaluate("window.announced") == []
    await expect(page.locator("#announcer")).to_have_text("Nothing comes to mind")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns li.companion").last).to_have_attribute("aria-busy", "false")


@pytest.mark.parametrize(
    ("locale", "language", "question"),
    [
        ("de-AT", "de", "Wer spricht?"),
        ("zh-CN", "zh", "是谁在说话？"),
        ("nl-NL", "en", "Who is speaking?"),
        ("en-GB", "en", "Who is speaking?"),
    ],
)
async def test_the_page_is_in_the_browsers_language(
    start: StartServer,
    browser: Browser,
    locale: str,
    language: str,
    question: str,
) -> None:
    """English where there is no file for it; numbers and times are written as there, too."""
    server = await start()
    texts = json.loads((ROOT / f"client_demo/languages/{language}.json").read_text("utf-8"))
    page = await browser.new_page(locale=locale)
    await enter(page, server, sample=True)
    await expect(page.locator("html")).to_have_attribute("lang", language)
    await expect(page.locator("#introduce h2")).to_have_text(question)
    await expect(page.get_by_label(texts["draft.label"])).to_be_focused()
    await page.locator("#suggestions button").first.click()
    about = page.locator("#memories li small").first
    await expect(about).to_contain_text(texts["sample.mark"])
    await expect(about).to_contain_text({"de": "vor 12 Tagen", "zh": "12天前"}.get(language, "12"))
    if locale == "en-GB":
        await page.locator("#open-panel").click()
        sessions = page.locator("#layers details", has_text="Sessions")
        await expect(sessions).to_contain_text(re.compile(r"\b\d\d? \w{3,4} 20\d\d\b"))


async def test_a_new_server_of_ones_own_has_companions_with_pasts(
    settings: Settings, tmp_path: Path
) -> None:
    """All examples; and what its page suggests to ask recalls what was told."""
    async with serving(settings.in_scratch(tmp_path / "own")) as (_, port):
        base = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(
            base_url=base, params={"user": "ana"}, timeout=PATIENCE
        ) as http:
            companions = (await http.get("/v1/companions")).json()
            slugs = {companion["slug"] for companion in companions}
            assert slugs == {path.stem for path in EXAMPLES.glob("*.toml")}
            assert slugs == {path.stem for path in SAMPLES.glob("*.json")}
            asked = [question for slug in sorted(slugs) for question in await _ask(http, slug)]
    assert sorted(asked) == sorted(ANSWERS)


async def _ask(http: httpx2.AsyncClient, slug: str) -> list[str]:
    """Import a sample past, check what is recalled for its questions, and return these."""
    text = (SAMPLES / f"{slug}.json").read_text("utf-8")
    later = datetime.now(UTC) - datetime.fromisoformat(json.loads(text)["past"]["exported_at"])
    sample = json.loads(_MOMENT.sub(lambda moment: _moved(moment[0], later), text))
    imported = await http.post(
        "/v1/relationships/import", params={"companion": slug}, json=sample["past"]
    )
    assert imported.status_code == 201, imported.text
    path = f"/v1/relationships/{imported.json()['id']}/context"
    for question in sample["ask"]:
        prepared: dict[str, Any] = (await http.get(path, params={"draft": question})).json()
        assert ANSWERS[question] in prepared["memories"][0]["content"], question
    return list(sample["ask"])


def _moved(moment: str, later: timedelta) -> str:
    """As the page moves the moments of a sample past along with today."""
    return (datetime.fromisoformat(moment) + later).isoformat()


async def test_a_server_on_a_database_of_its_operators_has_one_companion(
    start: StartServer,
) -> None:
    """Nobody needs to retire the others."""
    server = await start()
    companions = await server.app.core.stores.companions.list()
    assert [companion.slug for companion in companions] == ["wren"]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_a_sample_past_is_marked_in_the_file(path: Path) -> None:
    """By the ids of its messages, and it is as it was told in `tests/sample_pasts`."""
    past = json.loads(path.read_text("utf-8"))["past"]
    asked = [turn for turn in past["turns"] if turn["speaker"] == "user"]
    assert all(turn["message_id"].startswith("sample-") for turn in asked)
    told = (ROOT / "tests" / "sample_pasts" / f"{path.stem}.toml").read_text("utf-8")
    assert all(json.dumps(turn["text"], ensure_ascii=False) in told for turn in past["turns"])
