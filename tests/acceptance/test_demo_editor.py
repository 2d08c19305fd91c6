"""The companions and their language models, made and changed on the page, in a real browser."""

import json
import re
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Dialog, Page, expect

from foremind.cards.card_fields import slug_of
from foremind.cards.card_file import CardFormat, write_card
from foremind.domain.companion import CompanionFile
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_eval.processes.server_process import free_port
from tests.acceptance.demo import (
    enter,
    opened,
)
from tests.conftest import RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token
from tests.unit.lore.test_silly_tavern import NEW
from tests.unit.memory.test_foreign_chats import TAVERN

CARD: dict[str, Any] = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "data": {
        "name": "Mara",
        "description": "Mara runs the night ferry.",
        "personality": "dry",
        "scenario": "",
        "first_mes": "Mind the step.",
        "mes_example": "",
        "creator_notes": "keep me",
        "system_prompt": "",
        "post_history_instructions": "",
        "alternate_greetings": ["Fog again."],
        "tags": [],
        "creator": "",
        "character_version": "1",
        "extensions": {"talkativeness": "0.4"},
    },
}


async def open_editor(page: Page, server: RunningServer) -> None:
    """Enter, and open the dialog of the companions."""
    await enter(page, server)
    await page.click("#open-editor")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("Wren")


async def companion(server: RunningServer, slug: str) -> Any:
    """Return a companion as stored."""
    return await server.app.core.stores.companions.find(slug)


async def test_of_many_companions_the_chosen_one_is_marked_and_in_view(
    start: StartServer, page: Page
) -> None:
    """When the dialog is opened, and when another is chosen; also on the page."""
    server = await start()
    for number in range(60):
        file = CompanionFile(f"someone-{number}", f"Someone {number}", "x")
        await server.app.core.stores.companions.put(file)
    await enter(page, server)
    await page.locator("#faces-search").fill("Someone 47")
    await page.get_by_role("button", name="Someone 47").click()
    await expect(page.locator("#companion")).to_have_text("Someone 47")
    await page.locator("#faces-search").fill("")
    chosen = page.locator("#faces [aria-pressed=true]")
    await expect(chosen).to_have_text("Someone 47")
    await expect(chosen).to_be_in_viewport(ratio=1)
    await page.click("#open-editor")
    chosen = page.locator("#editor-faces [aria-pressed=true]")
    await expect(chosen).to_have_text("Someone 47")
    await expect(chosen).to_be_in_viewport(ratio=1)
    assert await chosen.evaluate("(face) => getComputedStyle(face).boxShadow") != "none"


async def test_a_companion_is_made_changed_and_retired(start: StartServer, page: Page) -> None:
    """It can be spoken with at once, and has a face."""
    server = await start()
    await open_editor(page, server)
    await page.get_by_role("button", name="New").click()
    await page.get_by_label("Name", exact=True).fill("Ilse")
    await page.get_by_label("Short name").fill("ilse")
    await page.get_by_label("Who this is").fill("You are Ilse, who repairs radios.")
    await page.get_by_label("Greeting").fill("Hand me that valve.")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#editor-notice")).to_have_text("Ilse was saved.")
    await expect(page.locator("#companion")).to_have_text("Ilse")
    await expect(page.locator("#turns")).to_contain_text("Hand me that valve.")
    await page.get_by_label("Greeting").fill("Careful, it is hot.")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#turns")).to_contain_text("Careful, it is hot.")
    assert (await companion(server, "ilse")).persona == "You are Ilse, who repairs radios."
    await expect(page.locator("#faces svg")).to_have_count(2)
    page.once("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Retire").click()
    await expect(page.locator("#editor-notice")).to_have_text("Ilse was retired.")
    await expect(page.locator("#companion")).to_have_text("Wren")
    await expect(page.locator("#faces svg")).to_have_count(1)


async def test_a_card_is_imported_changed_and_exported_whole(
    start: StartServer,
    page: Page,
    tmp_path: Path,
) -> None:
    """What the form does not show stays in the card; a card replaces nobody unasked."""
    server = await start()
    await open_editor(page, server)
    file = tmp_path / "Mara.json"
    file.write_text(json.dumps(CARD))
    await page.locator("#import-card").set_input_files(file)
    await expect(page.locator("#editor-notice")).to_have_text("Mara was imported.")
    await expect(page.get_by_label("Who this is")).to_have_value("Mara runs the night ferry.")
    await page.get_by_label("Who this is").fill("Mara runs the day ferry.")
    await page.get_by_label("Model", exact=True).fill("small")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#editor-notice")).to_have_text("Mara was saved.")
    stored = await companion(server, "mara")
    assert "Mara runs the day ferry." in stored.persona
    assert stored.settings.llm_model == "small"
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export as JSON").click()
    exported = json.loads((await (await download.value).path()).read_text())
    expected = CARD["data"] | {"description": "Mara runs the day ferry."}
    assert exported["data"] == expected
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export as PNG").click()
    picture = tmp_path / "wren.png"
    picture.write_bytes((await (await download.value).path()).read_bytes())
    await page.get_by_label("Greeting").fill("Mind the gap.")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#editor-notice")).to_have_text("Mara was saved.")
    page.once("dialog", lambda dialog: dialog.dismiss())
    await page.locator("#import-card").set_input_files(picture)
    await expect(page.locator("#editor-notice")).to_have_text("\u00a0")
    assert (await companion(server, "mara")).greeting == "Mind the gap."
    page.once("dialog", lambda dialog: dialog.accept())
    await page.locator("#import-card").set_input_files(picture)
    await expect(page.locator("#editor-notice")).to_have_text("Mara was imported.")
    assert (await companion(server, "mara")).greeting == "Mind the step."
    assert (await companion(server, "wren")).name == "Wren"


async def test_a_card_is_shown_whole_with_what_was_mended(
    start: StartServer,
    page: Page,
    tmp_path: Path,
) -> None:
    """Personality, scenario, greetings and lore; all but the lore can be changed."""
    server = await start()
    await open_editor(page, server)
    await expect(page.get_by_label("Personality")).to_be_hidden()
    lore = {"entries": [{"name": "Fog", "keys": ["fog", "mist"], "content": "It eats sound."}]}
    wrong = {"alternate_greetings": "Fog again.", "scenario": ["A pier.", "Night."]}
    file = tmp_path / "mara.json"
    file.write_text(json.dumps(CARD | {"data": CARD["data"] | wrong | {"character_book": lore}}))
    await page.locator("#import-card").set_input_files(file)
    await expect(page.locator("#card-notices li")).to_have_count(2)
    await expect(page.locator("#card-notices")).to_contain_text("alternate_greetings")
    await expect(page.get_by_label("Personality")).to_have_value("dry")
    await expect(page.get_by_label("Scenario")).to_have_value("A pier.\nNight.")
    await page.get_by_text("Further beginnings").click()
    greetings = page.locator("#card-greetings textarea")
    await expect(greetings.first).to_have_value("Fog again.")
    await page.get_by_text("Lore (1)").click()
    await expect(page.locator("#card-lore li")).to_have_text("Fog: fog, mist It eats sound.")
    await page.get_by_label("Personality").fill("warm")
    await greetings.last.fill("Low tide.")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#editor-notice")).to_have_text("Mara was saved.")
    await expect(page.locator("#card-notices li")).to_have_count(0)
    card = (await companion(server, "mara")).card
    changed = {"personality": "warm", "alternate_greetings": ["Fog again.", "Low tide."]}
    mended = {"scenario": "A pier.\nNight.", "character_book": lore}
    assert card == CARD["data"] | mended | changed


async def test_a_world_of_silly_tavern_is_imported_for_the_chosen_companion(
    start: StartServer,
    page: Page,
    tmp_path: Path,
) -> None:
    """What of it is not supported is named, and saving keeps it."""
    server = await start()
    page.on("dialog", lambda dialog: dialog.accept())
    await open_editor(page, server)
    await expect(page.locator("#of-lore")).to_be_hidden()
    file = tmp_path / "world.json"
    entry = NEW | {"uid": 0, "comment": "Fog", "key": ["fog"], "content": "It eats sound."}
    file.write_text(json.dumps({"entries": {"0": entry | {"vectorized": True}}}))
    await page.locator("#import-card").set_input_files(file)
    await expect(page.locator("#editor-notice")).to_have_text("Wren was imported.")
    await expect(page.locator("#card-notices")).to_contain_text("extensions.vectorized")
    await page.get_by_text("Lore (1)").click()
    await expect(page.locator("#card-lore li")).to_have_text("Fog: fog It eats sound.")
    book = (await companion(server, "wren")).card["character_book"]
    await page.get_by_label("Name", exact=True).fill("Wren the Elder")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#editor-notice")).to_have_text("Wren the Elder was saved.")
    renamed = await companion(server, "wren")
    assert renamed.name == "Wren the Elder"
    assert renamed.card == {"character_book": book}


async def test_many_companions_have_names_and_a_search(start: StartServer, page: Page) -> None:
    """By parts of their names, whatever the accents."""
    server = await start()
    names = ["Señora Mara", "Tom", "渡し守", "Ilse", "Odile", "Saffi", "Tock", "Bo"]
    for name in names:
        file = CompanionFile(slug_of(name), name, "A person.")
        await server.app.core.stores.companions.put(file)
    await open_editor(page, server)
    for part in ("#editor-faces", "#faces"):
        shown = page.locator(f"{part} button:not([hidden])")
        await expect(shown).to_have_count(len(names) + 1)
        await expect(page.locator(part)).to_contain_text("Odile")
    await page.locator("#editor-faces-search").fill("senora")
    await expect(page.locator("#editor-faces button:not([hidden])")).to_have_count(1)
    await page.get_by_role("dialog").get_by_role("button", name="Señora Mara").click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value("Señora Mara")


async def test_an_imported_companion_is_named_as_its_card_says(
    start: StartServer,
    page: Page,
    tmp_path: Path,
) -> None:
    """Whatever the file is called, and in each format; another character replaces nobody."""
    server = await start()
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    await open_editor(page, server)
    formats: tuple[CardFormat, ...] = ("png", "charx", "json")
    for name, card_format in zip(("Señora Mara", "Tom", "渡し守"), formats, strict=True):
        file = tmp_path / f"m.{card_format}"
        file.write_bytes(write_card(CARD["data"] | {"name": name}, card_format))
        await page.locator("#import-card").set_input_files(file)
        await expect(page.locator("#editor-notice")).to_have_text(f"{name} was imported.")
        await expect(page.get_by_label("Short name")).to_have_value(slug_of(name))
        assert (await companion(server, slug_of(name))).name == name
    assert asked == []


async def test_a_file_of_another_kind_is_refused_with_what_is_accepted(
    start: StartServer,
    browser: Browser,
    tmp_path: Path,
) -> None:
    """As a card, and as what is known of a user."""
    server = await start()
    page = await browser.new_page()  # its console may report the refusal
    await open_editor(page, server)
    for name, content in (("export.json", '{"format": "foremind.relationship"}'), ("a.png", "no")):
        file = tmp_path / name
        file.write_text(content)
        await page.locator("#import-card").set_input_files(file)
        await expect(page.locator("#editor-notice")).to_have_text(
            f"There is no character card in {name}. Choose one as JSON, PNG, APNG or CHARX."
        )
    await page.click("#close-editor")
    await page.click("#open-panel")
    for name, content in (("mara.json", json.dumps(CARD)), ("notes.json", "no JSON")):
        file = tmp_path / name
        file.write_text(content)
        await page.locator("#import").set_input_files(file)
        await expect(page.locator("#panel-notice")).to_contain_text(
            f"{name} is not an export of a companion. Choose a JSON file"
        )


async def test_changes_are_discarded_only_where_the_player_says_so(
    start: StartServer,
    page: Page,
) -> None:
    """By the button, by Escape, and by another companion; what is saved may be left unasked."""
    server = await start()
    asked: list[str] = []
    keep = True

    async def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await (dialog.dismiss() if keep else dialog.accept())

    page.on("dialog", answer)
    await open_editor(page, server)
    greeting = page.get_by_label("Greeting")
    await greeting.fill("You are late.")
    await page.click("#close-editor")
    await page.keyboard.press("Escape")
    await page.click("#new-companion")
    await expect(greeting).to_have_value("You are late.")
    assert asked == ["Discard what you have changed?"] * 3
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#editor-notice")).to_have_text("Wren was saved.")
    await page.click("#new-companion")
    await page.get_by_label("Name", exact=True).fill("Ilse")
    keep = False
    await page.keyboard.press("Escape")
    await expect(page.locator("#editor")).to_be_hidden()
    assert len(asked) == 4
    await page.click("#open-editor")
    await expect(greeting).to_have_value("You are late.")


async def test_a_language_model_is_set_and_tested(start: StartServer, page: Page) -> None:
    """By a sentence of it, or by what went wrong; of the test nothing is kept."""
    script = Script(background=lambda _: "{}")
    script.reply = lambda _: ["Good ", "evening."]
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        await open_editor(page, server)
        await page.get_by_role("button", name="Save and test").click()
        notice = page.locator("#editor-notice")
        await expect(notice).to_contain_text("by what the server has for all companions")
        await page.get_by_label("Address of").fill(model.url)
        await page.get_by_role("button", name="Save and test").click()
        await expect(notice).to_have_text(re.compile("^Answered in [0-9.]+ m?s: “Good evening.”$"))
        assert (await companion(server, "wren")).settings.llm_url == model.url
        users = await owner_of(server.app.core).fetch("SELECT external_id FROM users")
        assert not [user for user in users if user["external_id"].startswith("page-test-")]
        await page.get_by_label("Address of").fill("")
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(notice).to_have_text("Wren was saved.")
        assert (await companion(server, "wren")).settings.llm_url is None


async def test_a_new_companion_is_saved_and_tested(start: StartServer, page: Page) -> None:
    """Once the form says who it is; it replaces nobody unasked."""
    script = Script(background=lambda _: "{}")
    script.reply = lambda _: ["Good ", "evening."]
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        await open_editor(page, server)
        await page.get_by_role("button", name="New").click()
        await page.get_by_role("button", name="Save and test").click()
        await expect(page.get_by_label("Name", exact=True)).to_be_focused()
        await page.get_by_label("Name", exact=True).fill("Ilse")
        await page.get_by_label("Short name").fill("wren")
        await page.get_by_label("Who this is").fill("You are Ilse, who repairs radios.")
        async with page.expect_event("dialog") as asked:
            page.once("dialog", lambda dialog: dialog.dismiss())
            await page.get_by_role("button", name="Save and test").click()
        assert (await asked.value).message == "Wren has this short name. Replace Wren?"
        assert (await companion(server, "wren")).name == "Wren"
        await page.get_by_label("Short name").fill("ilse")
        await page.get_by_role("button", name="Save and test").click()
        await expect(page.locator("#editor-notice")).to_contain_text("“Good evening.”")
        assert (await companion(server, "ilse")).name == "Ilse"


async def test_a_language_model_that_fails_the_test_says_why(
    start: StartServer,
    browser: Browser,
) -> None:
    """And nothing of the test is kept either."""
    async with scripted_model(Script(status=401)) as model:
        server = await start(llm_url=model.url)
        page = await browser.new_page()  # whose console may report the refusal
        await open_editor(page, server)
        await page.get_by_role("button", name="Save and test").click()
        await expect(page.locator("#editor-notice")).to_contain_text("That failed: ")
        users = await owner_of(server.app.core).fetch("SELECT name FROM users")
        assert [user["name"] for user in users] == ["Ana"]
        await page.get_by_label("Address of").fill(f"http://127.0.0.1:{free_port()}/v1")
        await page.get_by_role("button", name="Save and test").click()
        await expect(page.locator("#editor-notice")).to_contain_text("cannot answer right now")


async def test_players_with_tokens_are_offered_no_editor(start: StartServer, page: Page) -> None:
    """Nor a sample past."""
    server = await start(auth_secret=SECRET)
    await page.goto(f"http://127.0.0.1:{server.port}/#token={token()}")
    await expect(page.locator("#lamp")).to_have_attribute("data-state", "idle")
    await expect(page.locator("#open-panel")).to_be_visible()
    await expect(page.locator("#open-editor")).to_be_hidden()
    await expect(page.locator("#turns li.sample")).to_have_count(0)


async def test_a_chat_of_another_program_is_imported_on_the_page(
    start: StartServer,
    page: Page,
    tmp_path: Path,
) -> None:
    """And shown as such, with what could not be read."""
    await opened(start, page)
    await page.click("#open-panel")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.click("#forget-all")  # the sample past
    await expect(page.locator("#panel-notice")).not_to_have_text("\u00a0")
    chat = tmp_path / "Wren - 2024-7-12@01h31m37s.jsonl"
    chat.write_bytes(TAVERN + b"\n{broken")
    await page.locator("#import").set_input_files(chat)
    notice = page.locator("#panel-notice")
    await expect(notice).to_contain_text("Imported from SillyTavern: 3 turns.")
    await expect(notice).to_contain_text("line 5: expected JSON")
    await page.click("#close-panel")
    await expect(page.locator("#turns")).to_contain_text("Imported from another program")
    await expect(page.locator("#turns")).to_contain_text("Bo is my dog.")
