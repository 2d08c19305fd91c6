"""Every code block of the documents does what it says, against a real server."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx2
import jwt
import msgspec
import pytest
import yaml
from playwright.async_api import Page, expect
from tokenizers import Tokenizer

from foremind.api.event_routes import EventBody, EventsBody, EventView, StoredEvents
from foremind.app.configuration import load_settings, read_companion
from foremind.lore.activation import ScannedMessage, activate
from foremind.lore.lorebook import Lorebook, lorebook_in
from foremind.memory.erasure.eraser import ErasureReceipt
from foremind_client import Client, Conversation, Identity, connect
from foremind_eval.doubles.random_model import write_random_model
from foremind_eval.processes.server_process import free_port
from foremind_models import ConvertedEncoder
from tests.acceptance.hosting import hosting
from tests.clients.conftest import compile_csharp
from tests.clients.luau_driver import MODULE, load, machine
from tests.clients.test_godot import check_scripts
from tests.conftest import (
    PATIENCE,
    ROOT,
    StartServer,
    eventually_async,
    owner_of,
)
from tests.contract.check import check_event
from tests.contract.committed import GODOT, JAVASCRIPT
from tests.contract.conftest import node, npm_folder  # noqa: F401 - fixtures
from tests.contract.test_npm_package import CHECK_TYPES, installed  # noqa: F401 - a fixture
from tests.docs.markdown import Block, block, blocks
from tests.docs.model_servers import StrictServer, running
from tests.docs.shell import Shell, commands
from tests.integration.test_evaluation import LOCOMO
from tests.integration.test_world_stories import THINGS, Narrator
from tests.programs import program
from tests.unit.auth.test_access_tokens import SECRET, token
from tests.unit.cards.sample_cards import V3, document, png, text_chunk

_MAINTENANCE = "docker compose --file deploy/compose.yaml run --rm maintenance"
PICTURE = "text"  # a diagram or formula, which is not run
# Each block that does something, by its file and its first line, and the test that runs it.
RUN = {
    ("docs/characters.md", "foremind companions put"): "test_a_card_is_put_and_given_back",
    ("docs/lorebooks.md", 'slug = "mara"'): "test_the_lorebook_shown_fires",
    ("CONTRIBUTING.md", "make test"): "test_the_commands_for_contributors_are_there",
    ("README.md", "make serve"): "test_one_command_serves_the_page",
    ("README.md", "# Ollama"): "test_readme_shows_one_of_the_model_servers",
    ("README.md", "<form"): "test_the_page_for_a_browser_talks",
    ("README.md", "import asyncio"): "test_the_client_in_python_talks",
    ("README.md", ".venv/bin/python talk.py"): "test_the_client_in_python_talks",
    ("README.md", "python3 -m http.server"): "test_the_page_for_a_browser_talks",
    ("server/README.md", "foremind serve"): "test_one_command_serves_the_page",
    ("server/README.md", "import asyncio"): "test_the_client_in_python_talks",
    ("server/README.md", "python talk.py"): "test_the_client_in_python_talks",
    ("transport/README.md", "import asyncio"): "test_the_transport_serves_as_shown",
    ("clients/javascript/README.md", "import { Foremind }"): "test_the_npm_package_talks_in_node",
    ("docs/clients.md", "extends Control"): "test_the_script_shown_for_godot_is_only_parsed",
    ("docs/clients.md", "local HttpService"): "test_the_script_shown_for_roblox_talks",
    ("docs/clients.md", "using Foremind;"): "test_the_script_shown_for_unity_is_compiled",
    ("docs/clients.md", "npm pack"): "test_the_npm_package_is_made_as_shown",
    ("docs/clients.md", "import { Foremind"): "test_typescript_accepts_what_is_shown",
    ("docs/clients.md", "import asyncio"): "test_a_game_server_talks_as_shown",
    ("docs/access.md", "now = int("): "test_a_token_made_as_shown_opens_a_session",
    ("docs/access.md", "foremind keys new"): "test_keys_are_made_as_shown",
    ("docs/benchmarks.md", "foremind eval"): "test_every_benchmark_can_be_run",
    ("docs/doors.md", "docker run"): "test_open_webui_and_librechat_are_set_up_as_shown",
    ("docs/doors.md", "endpoints:"): "test_open_webui_and_librechat_are_set_up_as_shown",
    ("docs/doors.md", "import OpenAI"): "test_the_clients_of_openai_talk",
    ("docs/doors.md", "import sys"): "test_the_clients_of_openai_talk",
    ("docs/hosting.md", "# Ollama"): "test_each_model_server_answers",
    ("docs/hosting.md", "sh deploy/compose/new-env.sh"): "test_compose_is_commanded_as_shown",
    ("docs/scaling.md", "kubectl"): "test_kubernetes_is_commanded_as_shown",
    ("docs/hosting.md", "docker compose"): "test_compose_is_commanded_as_shown",
    ("docs/hosting.md", 'slug = "mara"'): "test_a_companion_is_put_and_listed",
    ("docs/hosting.md", "foremind companions put"): "test_a_companion_is_put_and_listed",
    ("docs/hosting.md", "foremind embed"): "test_embedding_runs_apart_as_shown",
    ("docs/scaling.md", "foremind serve --workers"): "test_workers_share_a_port_as_shown",
    ("docs/hosting.md", "foremind models list"): "test_embedding_models_are_handled_as_shown",
    ("docs/hosting.md", "foremind db reembed"): "test_an_embedding_model_is_replaced_as_shown",
    (
        "docs/http.md",
        '{"events": [{"id": "quest-7", "type"',
    ): "test_events_are_reported_and_answered_as_shown",
    (
        "docs/http.md",
        '{"events": [{"id": "quest-7", "turn_id"',
    ): "test_events_are_reported_and_answered_as_shown",
    ("docs/http.md", '{"memories"'): "test_the_receipt_is_what_erasing_answers",
    ("docs/languages.md", "foremind eval"): "test_languages_are_measured_as_shown",
    ("docs/languages.md", "fillers = "): "test_languages_are_measured_as_shown",
    ("docs/layers.md", "[settings]"): "test_settings_of_a_companion_are_valid",
    ("docs/layers.md", "foremind files write"): "test_memory_is_written_to_files_and_read_back",
    ("docs/layers.md", "curl "): "test_a_document_is_uploaded_with_curl",
    ("docs/mcp.md", "FOREMIND_MCP"): "test_memory_tools_are_used_as_shown",
    ("docs/mcp.md", '{"mcpServers"'): "test_memory_tools_are_used_as_shown",
    ("docs/mcp.md", "import asyncio"): "test_memory_tools_are_used_as_shown",
    ("docs/memory.md", "[settings.significance]"): "test_settings_of_a_companion_are_valid",
    (
        "docs/protocol.md",
        '→ {"type": "session.open"',
    ): "test_the_protocol_by_example_is_what_is_sent",
    ("docs/protocol.md", '→ {"type": "message.edit"'): "test_edits_by_example_are_what_is_sent",
    ("docs/protocol.md", "const socket"): "test_a_browser_offers_its_token_as_shown",
    ("docs/user-data.md", "[settings]"): "test_settings_of_a_companion_are_valid",
    (
        "docs/worlds.md",
        "curl -s -X PUT localhost:8770/v1/worlds/vale -H",
    ): "test_a_world_is_hosted_with_curl",
    (
        "docs/worlds.md",
        "curl -s -X PUT localhost:8770/v1/worlds/vale/actions",
    ): "test_a_world_is_hosted_with_curl",
    (
        "docs/worlds.md",
        "curl -s -X PUT localhost:8770/v1/worlds/vale/triggers",
    ): "test_a_world_is_hosted_with_curl",
    (
        "docs/worlds.md",
        "curl -s -X PUT 'localhost:8770/v1/admin/companions",
    ): "test_a_world_is_hosted_with_curl",
    ("docs/worlds.md", '→ {"type": "session.open"'): "test_a_scene_by_example_is_what_is_sent",
    ("docs/worlds.md", "curl -s -X POST"): "test_a_world_is_hosted_with_curl",
    ("docs/worlds.md", "curl -s localhost"): "test_a_world_is_hosted_with_curl",
    ("docs/turns.md", "curl -s "): "test_turns_are_made_with_curl",
    ("docs/turns.md", '{"turn_id"'): "test_turns_are_made_with_curl",
    ("docs/turns.md", "curl -sN"): "test_turns_are_made_with_curl",
    ("docs/turns.md", "POST /v1/turns"): "test_a_turn_is_made_of_plain_bytes",
}


def test_every_block_is_run() -> None:
    """Each block is in the table above, and each row of the table names a block and a test."""
    shown = set()
    for sample in blocks():
        if sample.language == PICTURE:
            commands_in_it = re.search(r"^(foremind|make|curl|\{|FOREMIND_)", sample.text, re.M)
            assert not commands_in_it, str(sample)
            continue
        rows = [
            (file, first)
            for file, first in RUN
            if file == sample.file and sample.first.startswith(first)
        ]
        assert len(rows) == 1, f"{sample}: in {rows}"
        assert RUN[rows[0]] in globals(), RUN[rows[0]]
        shown.update(rows)
    assert shown == set(RUN)


@pytest.fixture
def shell(tmp_path: Path, database_url: str, model: ConvertedEncoder) -> Shell:
    """An empty folder, and a migrated database."""
    return Shell(tmp_path, {"FOREMIND_DATABASE_URL": database_url})


def test_the_commands_for_contributors_are_there() -> None:
    """Each make target exists, and what pytest is given does."""
    for command in commands(block("CONTRIBUTING.md", "make test").text):
        if command.startswith("make "):
            assert command.split()[1] in _targets(), command
        else:
            assert (ROOT / command.split()[3]).is_dir(), command


async def test_workers_share_a_port_as_shown(shell: Shell) -> None:
    """Fewer here; a conversation begins at the shared port."""
    (command,) = commands(block("docs/scaling.md", "foremind serve --workers").text)
    shell.swaps = {"--workers 4": "--workers 2"}
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(shell.serving(command))
        wren = await stack.enter_async_context(Conversation(url, Identity("wren", user_id="ana")))
        assert (await wren.say("Hello"))["status"] == "completed"


@pytest.mark.parametrize(
    ("file", "first"), [("README.md", "make serve"), ("server/README.md", "foremind serve")]
)
async def test_one_command_serves_the_page(shell: Shell, file: str, first: str) -> None:
    """On its own database; others are what runs this test, and two to look at."""
    serve, *others = commands(block(file, first).text)
    in_ci, _, _ = (ROOT / ".ci" / "run").read_text().splitlines()[-1].partition(" || ")
    assert {*others} <= {in_ci, "make demo", "make world"}
    shell.settings = {}
    async with shell.serving(serve) as url, connect(url) as client:
        assert (await _open(client))["type"] == "session.opened"


def test_readme_shows_one_of_the_model_servers() -> None:
    """Its line is one of those in docs/hosting.md, which are run below."""
    (shown,) = commands(block("README.md", "# Ollama").text)
    assert shown in commands(block("docs/hosting.md", "# Ollama").text)


def _model_servers(tokenizer: Tokenizer) -> list[tuple[StrictServer, dict[str, str]]]:
    """The servers of the documented lines, in order, and what replaces text of those lines here."""
    text = block("docs/hosting.md", "# Ollama").text
    comments = {
        kind: re.search(rf"^# {kind}(.*)$", text, re.M)[1]  # type: ignore[index]
        for kind in ("Ollama", r"llama\.cpp", "vLLM")
    }
    served = comments["vLLM"].split("vllm serve ")[1].split()[0]
    return [
        (StrictServer(tokenizer, 4096, truncates=True, models=("llama3.2",)), {"11434": "PORT"}),
        (StrictServer(tokenizer, int(comments[r"llama\.cpp"].split("-c ")[1].split()[0])),
         {"127.0.0.1:8080": "127.0.0.1:PORT"}),
        (StrictServer(
            tokenizer,
            int(comments["vLLM"].split("--max-model-len ")[1].split()[0]),
            models=(served,),
            # Qwen3 models think aloud in the reply, except for the Instruct variants.
            thinks="Qwen3" in served and "Instruct" not in served,
         ), {"127.0.0.1:8000": "127.0.0.1:PORT"}),
        (StrictServer(tokenizer, 16_384, models=("hosted",), key="sesame"),
         {"https://…": "http://127.0.0.1:PORT/v1",
          "MODEL=…": "MODEL=hosted", "KEY=…": "KEY=sesame"}),
    ]  # fmt: skip


@pytest.mark.parametrize("line", range(4))
async def test_each_model_server_answers(shell: Shell, model: ConvertedEncoder, line: int) -> None:
    """Late in a long conversation too: it reads persona and message, and does not think aloud."""
    tokenizer = Tokenizer.from_file(str(model.folder / "tokenizer.json"))
    tokenizer.no_truncation()
    server, swaps = _model_servers(tokenizer)[line]
    command = commands(block("docs/hosting.md", "# Ollama").text)[line]
    async with running(server) as port, AsyncExitStack() as stack:
        shell.swaps = {
            written: meant.replace("PORT", str(port)) for written, meant in swaps.items()
        }
        url = await stack.enter_async_context(shell.serving(command))
        client = await stack.enter_async_context(connect(url))
        await _open(client)
        for number in range(16):
            await client.send(f"Chapter {number}. {_LONG_TALK}", f"m{number}")
            done = await client.expect("response.done")
            assert (done["status"], done["text"]) == ("completed", "Hello there."), done
    assert server.refused == []
    assert "You are Wren" in server.seen[-1]
    assert "Chapter 15" in server.seen[-1]
    assert not server.thinks


_LONG_TALK = (
    "The ferry left the harbour before dawn, and nobody on the quay waved. My sister said that the "
    "captain keeps a parrot which knows four languages and uses them all at once. We had bread, "
    "two oranges and a map on which half of the islands were missing. "
) * 20


async def test_a_companion_is_put_and_listed(shell: Shell) -> None:
    """From the file that the previous block shows."""
    (shell.folder / "mara.toml").write_text(block("docs/hosting.md", 'slug = "mara"').text)
    put, listed = commands(block("docs/hosting.md", "foremind companions put").text)
    await shell.run(put)
    assert "Mara" in await shell.run(listed)


async def test_a_card_is_put_and_given_back(shell: Shell) -> None:
    """By the command line; one that has no slug is refused, with what to do."""
    (shell.folder / "mara.png").write_bytes(png(text_chunk("ccv3", document(V3, 3))))
    put, get = commands(block("docs/characters.md", "foremind companions put").text)
    async with shell.serving("foremind serve") as url:
        await shell.run(put)
        async with Conversation(url, Identity("mara", user_id="ana")) as mara:  # at once
            assert (await mara.say("Good evening"))["status"] == "completed"
    await shell.run(get)
    assert json.loads((shell.folder / "mara.json").read_text())["data"] == V3
    assert '"chara_card_v3"' in await shell.run("foremind companions get mara")
    (shell.folder / "tower.json").write_bytes(document(V3 | {"name": "🗼"}, 3))
    assert "--slug" in await shell.run("foremind companions put tower.json", expected=1)


async def test_the_protocol_by_example_is_what_is_sent(start: StartServer) -> None:
    """Every frame has exactly the fields that it has on the socket."""
    client = await (await start()).connect()
    shown = list(_frames(block("docs/protocol.md", '→ {"type": "session.open"').text))
    expected = {frame["type"] for arrow, frame in shown if arrow == "←"}
    received: dict[str, dict[str, Any]] = {}

    async def receive(*types: str) -> None:
        while not set(types) <= received.keys():
            event = await client.next_event()
            received[event["type"]] = event

    sent = [frame for arrow, frame in shown if arrow == "→"]
    await client.send_raw(sent[0])
    await receive("session.opened")
    await client.send("I promise I'll help you with your garden tomorrow", "m0")
    await receive("response.done", "memory.stored")
    received.clear()
    for frame in sent[1:]:
        await client.send_raw(frame)
        if frame["type"] == "draft.update" and frame["text"].endswith("?"):
            await receive("context.ready")
        if frame["type"] == "message.send":
            await receive("response.output_text.delta", "response.done", "memory.stored")
    await client.send_raw({"type": "message.send", "id": "m2"})
    await receive("error")
    received["session.opened"] = await _open(await (await start()).connect())
    assert expected <= received.keys()
    _check_fields(shown, received)


async def test_edits_by_example_are_what_is_sent(start: StartServer) -> None:
    """The same is true of a message that is edited, answered again, and whose reply is chosen."""
    client = await (await start()).session()
    shown = list(_frames(block("docs/protocol.md", '→ {"type": "message.edit"').text))
    await client.send("What did I promise?", "m1")
    await client.expect("response.done")
    received: dict[str, dict[str, Any]] = {}
    every: dict[str, dict[str, Any]] = {}
    for arrow, frame in shown:
        if arrow == "→":
            await client.send_raw(frame)
            ends = "response.chosen" if frame["type"] == "response.choose" else "response.done"
            received.clear()
            while ends not in received:
                event = await client.next_event()
                received[event["type"]] = every[event["type"]] = event
        else:
            event = received[frame["type"]]
            for name in ("id", "message_id", "duplicate", "index", "count"):
                assert frame.get(name) == event.get(name), (frame["type"], name)
    _check_fields(shown, every)


async def test_a_scene_by_example_is_what_is_sent(start: StartServer) -> None:
    """Every frame has exactly the fields that it has on the socket, in the order that is shown."""
    shown = list(_frames(block("docs/worlds.md", '→ {"type": "session.open"').text))
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"], place="the tavern")
        client = await server.connect()
        for arrow, frame in shown:
            if arrow == "→":
                await client.send_raw(frame)
                continue
            event = await client.next_event()
            while event["type"] != frame["type"]:
                event = await client.next_event()
            _check_fields([(arrow, frame)], {event["type"]: event})
            for name in ("id", "how", "actor", "to", "place", "here"):
                assert frame.get(name) == event.get(name), (frame["type"], name)


def _check_fields(
    shown: Sequence[tuple[str, dict[str, Any]]], received: Mapping[str, dict[str, Any]]
) -> None:
    """Check that the events of an example have the fields of those that were received."""
    for arrow, frame in shown:
        if arrow == "←":
            assert frame.keys() == received[frame["type"]].keys(), frame["type"]
            for name, value in frame.items():
                actual = received[frame["type"]][name]
                if value and isinstance(value, list) and isinstance(value[0], dict):
                    value, actual = value[0], actual[0]  # noqa: PLW2901
                if isinstance(value, dict) and value:
                    assert value.keys() == actual.keys(), (frame["type"], name)


def _frames(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the frames of an example, without the remarks next to them."""
    for part in re.split(r"^(?=[→←])", text.replace("{…}", "{}"), flags=re.M):
        if part.strip():
            frame, _ = json.JSONDecoder().raw_decode(part[part.index("{") :])
            yield part[0], frame


async def _until_remembered(url: str, user: str) -> None:
    """Wait until a server, named by its socket, remembers something of a user."""
    address = url.replace("ws://", "http://").replace("/ws", "/relationships")

    async def is_remembered() -> bool:
        listed = await http.get(address, params={"user": user})
        return any(relationship["memories"] for relationship in listed.json())

    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        await eventually_async(is_remembered)


async def test_the_page_for_a_browser_talks(shell: Shell, page: Page) -> None:
    """Served as shown: typing recalls, Enter sends, what was said is there after a reload."""
    serve_page, serve = commands(block("README.md", "python3 -m http.server").text)
    game, port = serve.split()[0].partition("=")[2], str(free_port())
    shell.swaps = {"8000": port}
    game = game.replace("8000", port)
    html = _local(shell, block("README.md", "<form").text)
    (shell.folder / "index.html").write_text(html)
    (shell.folder / "favicon.ico").touch()  # which browsers ask for
    shutil.copy(JAVASCRIPT / "lib" / "foremind.js", shell.folder)
    pages = await asyncio.create_subprocess_exec(
        *serve_page.replace("8000", port).split(), cwd=shell.folder, stderr=subprocess.DEVNULL
    )
    try:
        async with shell.serving(serve) as url:
            await eventually_async(partial(_answers, game))
            await page.goto(f"{game}/")
            said = page.locator("#said li")
            for text in ("I promise to name my boat Zephyrine", "What will I name my boat?"):
                await page.locator("#chat input").click()
                await page.keyboard.type(text, delay=10)
                await page.keyboard.press("Enter")
                await expect(page.locator("#chat input")).to_have_value("")
                await expect(said.nth(-2)).to_have_text(text)
                await expect(said.last).not_to_be_empty()
                await _until_remembered(url, "player-17")
            await expect(said.last).to_contain_text("Zephyrine")
            assert page.url == f"{game}/"
            await page.reload()
            await expect(said).to_contain_text(["I promise", "", "What will I", "Zephyrine"])
            await page.goto("about:blank")  # it would connect again
    finally:
        pages.terminate()
        await pages.wait()


async def _answers(url: str) -> bool:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        try:
            return (await http.get(url)).status_code == 200
        except httpx2.ConnectError:
            return False


async def test_a_browser_offers_its_token_as_shown(start: StartServer, page: Page) -> None:
    """It keeps the connection, and needs no token in `session.open`."""
    server = await start(auth_secret=SECRET)
    await page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    await page.goto(f"http://127.0.0.1:{server.port}/healthz")
    opened, selected = await page.evaluate(
        """([url, token]) => new Promise((resolve, reject) => {
            SHOWN
            socket.onopen = () => socket.send('{"type": "session.open", "companion": "wren"}');
            socket.onmessage = ({ data }) => resolve([JSON.parse(data), socket.protocol]);
            socket.onerror = socket.onclose = reject;
        })""".replace("SHOWN", block("docs/protocol.md", "const socket").text),
        [server.url, token()],
    )
    assert (opened["type"], opened["user"]["id"]) == ("session.opened", "ana")
    assert selected == "foremind.v1"


@pytest.mark.parametrize(
    ("file", "python"), [("README.md", ".venv/bin/python"), ("server/README.md", "python")]
)
async def test_the_client_in_python_talks(shell: Shell, file: str, python: str) -> None:
    """The program, run as shown, recalls what was said to it before."""
    (shell.folder / "talk.py").write_text(_local(shell, block(file, "import asyncio").text))
    told, asked = commands(block(file, f"{python} talk.py").text)
    shell.swaps = {f"{python} ": f"{sys.executable} "}
    async with shell.serving("foremind serve") as url:
        assert (await shell.run(told)).strip()
        await _until_remembered(url, "player-17")
        assert "Zephyrine" in await shell.run(asked)


def _local(shell: Shell, text: str) -> str:
    """Return a program that talks with the server of a shell."""
    assert "127.0.0.1:8770" in text
    return text.replace("8770", str(shell.port))


async def test_a_game_server_talks_as_shown(shell: Shell) -> None:
    """It prints a reply piece by piece, and which setting there is not."""
    text = block("docs/clients.md", "import asyncio").text
    (shell.folder / "game.py").write_text(_local(shell, text))
    async with shell.serving("foremind serve"):
        printed = await shell.run(f"{sys.executable} game.py")
    reply, _, refusal = printed.rpartition("settings.llm_temprature: ")
    assert reply.strip()
    assert "did you mean `llm_temperature`?" in refusal


def test_the_npm_package_is_made_as_shown(tmp_path: Path) -> None:
    """The command, in a copy of the checkout's folder."""
    (command,) = commands(block("docs/clients.md", "npm pack").text)
    (tmp_path / "clients").mkdir()
    shutil.copytree(JAVASCRIPT, tmp_path / "clients" / "javascript")
    run = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (tmp_path / run.stdout.strip()).is_file()


def test_the_script_shown_for_godot_is_only_parsed(tmp_path: Path) -> None:
    """And linted; what it uses of the autoload is there."""
    text = block("docs/clients.md", "extends Control").text
    (tmp_path / "shown.gd").write_text(text)
    check_scripts(tmp_path / "shown.gd")
    autoload = (GODOT / "foremind.gd").read_text("utf-8")
    used = set(re.findall(r"Foremind\.(\w+)", text))
    assert used == {"companion", "user_id", "event_received", "type", "send", "open"}
    for name in used:
        assert re.search(rf"^(var|func|signal) {name}\b", autoload, re.M), name


def test_the_script_shown_for_unity_is_compiled(tmp_path: Path) -> None:
    """With what it uses of Unity declared, since Unity is not there."""
    (tmp_path / "Wren.cs").write_text(block("docs/clients.md", "using Foremind;").text)
    (tmp_path / "Unity.cs").write_text(
        "namespace UnityEngine { public class MonoBehaviour {}"
        " public static class Debug { public static void Log(object message) {} } }"
    )
    sources = sorted(tmp_path.glob("*.cs"))
    compile_csharp(tmp_path / "game.dll", *sources, target="library")


@pytest.mark.usefixtures("installed")
def test_typescript_accepts_what_is_shown(
    node: Callable[..., CompletedProcess[str]],  # noqa: F811 - the fixture
    npm_folder: Path,  # noqa: F811 - the fixture
) -> None:
    """In strict mode, with the types of the package."""
    (npm_folder / "shown.ts").write_text(block("docs/clients.md", "import { Foremind").text)
    result = node(*CHECK_TYPES, "shown.ts")
    assert result.returncode == 0, result.stdout


async def test_the_transport_serves_as_shown() -> None:
    """An application of three lines."""
    port = free_port()
    text = block("transport/README.md", "import asyncio").text.replace("8080", str(port))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", text)
    try:
        url = f"http://127.0.0.1:{port}/"
        await eventually_async(partial(_answers, url))
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            assert (await http.get(url)).text == "hello\n"
    finally:
        process.kill()
        await process.wait()


@pytest.mark.usefixtures("installed")
async def test_the_npm_package_talks_in_node(
    start: StartServer,
    node: Callable[..., CompletedProcess[str]],  # noqa: F811 - the fixture
) -> None:
    """The program in its README prints a reply and ends."""
    server = await start()
    text = block("clients/javascript/README.md", "import { Foremind }").text
    text = text.replace("ws://127.0.0.1:8770/v1/ws", server.url)
    result = await asyncio.to_thread(node, "--input-type=module", "-e", text)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().splitlines()


_ROBLOX = """
local services = game.GetService
game = {
    GetService = function(self, name)
        if name == "ReplicatedStorage" then return {} end
        local service = services(self, name)
        service.GetSecret = function() return secret end
        return service
    end,
}
Instance = { new = function() remote = {} return remote end }
script = { Parent = {} }
"""


async def test_the_script_shown_for_roblox_talks(start: StartServer) -> None:
    """Of Roblox there is only what the script uses."""
    server = await start(auth_secret=SECRET)
    text = block("docs/clients.md", "local HttpService").text
    text = text.replace("https://mind.example", f"http://127.0.0.1:{server.port}")

    def invoke() -> str:
        lua = machine()
        lua.globals().set("secret", token(sub="game", scopes=["host", "chat"]))
        lua.load_chunk(_ROBLOX, name="roblox")()
        module = load(MODULE, lua)
        lua.globals().set("require", lua.create_function(lambda *_: [module]))
        lua.load_chunk(text, name="script")()
        call = 'return remote.OnServerInvoke({ UserId = 17, DisplayName = "Ana" }, "Good morning")'
        return str(lua.load_chunk(call, name="player")()[0])

    assert " " in await asyncio.to_thread(invoke)


_OPENAI = {
    "talk.py": ("import sys", f"{sys.executable} talk.py"),
    "talk.mjs": ("import OpenAI", "node talk.mjs"),
}


@pytest.mark.parametrize("file", _OPENAI)
async def test_the_clients_of_openai_talk(
    shell: Shell,
    npm_folder: Path,  # noqa: F811 - the fixture
    file: str,
) -> None:
    """Told and asked as the page says, they print what Ana said."""
    first, command = _OPENAI[file]
    (shell.folder / file).write_text(_local(shell, block("docs/doors.md", first).text))
    (shell.folder / "node_modules").symlink_to(npm_folder / "node_modules")
    said = re.search(r'tell it "(.*?)", then ask it "(.*?)"', _page("docs/doors.md"))
    assert said is not None
    async with shell.serving("foremind serve") as url:
        assert (await shell.run(f'{command} "{said[1]}"')).strip()
        await _until_remembered(url, "ana")
        assert said[1] in await shell.run(f'{command} "{said[2]}"')


def _page(file: str) -> str:
    """Return the text of a document on one line."""
    return " ".join((ROOT / file).read_text("utf-8").split())


async def test_open_webui_and_librechat_are_set_up_as_shown(start: StartServer) -> None:
    """What they are told lets them list companions and speak for their users, as in headers."""
    server = await start(auth_secret=SECRET)
    (command,) = commands(block("docs/doors.md", "docker run").text)
    told = dict(re.findall(r"-e (\w+)=(\S+)", command))
    assert told["ENABLE_FORWARD_USER_INFO_HEADERS"] == "true"
    shown = yaml.safe_load(block("docs/doors.md", "endpoints:").text)
    (endpoint,) = shown["endpoints"]["custom"]
    user = {"{{LIBRECHAT_USER_ID}}": "6b20", "{{LIBRECHAT_BODY_CONVERSATIONID}}": "c1"}
    for url, key, headers in (
        (
            told["OPENAI_API_BASE_URL"],
            told["OPENAI_API_KEY"],
            {"x-openwebui-user-id": "6a1f", "x-openwebui-user-name": "Ana"},
        ),
        (
            endpoint["baseURL"],
            endpoint["apiKey"],
            {name: user[value] for name, value in endpoint["headers"].items()},
        ),
    ):
        assert (url, key) == ("http://foremind.example:8770/v1", "TOKEN")
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}/v1",
            headers=headers
            | {
                "authorization": f"Bearer {token(sub='webui', scopes=['chat', 'host'])}",
                "host": "foremind.example:8770",
            },
            timeout=PATIENCE,
        ) as http:
            listed = (await http.get("/models")).json()
            asked = {
                "model": listed["data"][0]["id"],
                "messages": [{"role": "user", "content": "Good morning"}],
            }
            answer = await http.post("/chat/completions", json=asked)
        assert answer.status_code == 200, answer.text
    users = await owner_of(server.app.core).fetch("SELECT external_id, name FROM users ORDER BY id")
    assert [tuple(row) for row in users] == [("6a1f", "Ana"), ("6b20", "the user")]


async def test_a_token_made_as_shown_opens_a_session(start: StartServer) -> None:
    """Signed with the server's FOREMIND_AUTH_SECRET."""
    server = await start(auth_secret=SECRET)
    names: dict[str, Any] = {"jwt": jwt, "time": time, "secret": SECRET}
    exec(block("docs/access.md", "now = int(").text, names)
    opened = await (await server.connect()).open_session("wren", token=names["token"])
    assert opened["user"] == {"id": "player-17", "name": "Ana"}


async def test_embedding_models_are_handled_as_shown(shell: Shell, tmp_path: Path) -> None:
    """A model from a folder; downloads are tested against a hub in test_model_download.py."""
    listed, shipped, from_hub, from_folder, calibrate, bench = commands(
        block("docs/hosting.md", "foremind models").text
    )
    assert shipped == "foremind models pull multilingual-e5-small"
    assert re.match(r"foremind models pull \S+/\S+ --query-prefix \"[^\"]+\"$", from_hub)
    write_random_model(tmp_path / "a model", dimension=384, layers=1)
    shell.swaps = {"FOLDER": f"'{tmp_path / 'a model'}'"}
    shell.settings = {"FOREMIND_MODELS_PATH": str(tmp_path / "models")}
    await shell.run(from_folder)
    assert "my-model" in await shell.run(listed)
    assert "Calibrating my-model" in await shell.run(calibrate)
    shell.settings = {}
    assert "int8" in await shell.run(bench)


async def test_an_embedding_model_is_replaced_as_shown(shell: Shell, tmp_path: Path) -> None:
    """Beside a server; that its players notice nothing is tested in test_reembed.py."""
    (reembed,) = commands(block("docs/hosting.md", "foremind db reembed").text)
    (serve,) = commands(block("server/README.md", "foremind serve").text)
    write_random_model(tmp_path / "a model", dimension=384, layers=1)
    models = tmp_path / "models"
    shutil.copytree(load_settings().models_dir, models)
    shell.settings = {**shell.settings, "FOREMIND_MODELS_PATH": str(models)}
    await shell.run(f"foremind models pull my-model --from '{tmp_path / 'a model'}'")
    async with shell.serving(serve):
        assert "FOREMIND_EMBEDDING_MODEL=my-model" in await shell.run(reembed)


async def test_embedding_runs_apart_as_shown(shell: Shell) -> None:
    """The second command's server uses that of the first."""
    embed, serve = commands(block("docs/hosting.md", "foremind embed").text)
    port = str(free_port())
    shell.swaps = {"foremind embed": f"foremind embed --port {port}", "8769": port}
    async with shell.serving(embed), shell.serving(serve) as url:
        ready = url.replace("ws://", "http://").replace("/v1/ws", "/readyz")
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:

            async def is_used() -> bool:
                return bool((await http.get(ready)).json()["embedding_server"] == "ok")

            await eventually_async(is_used)  # on a busy machine, only when it is checked again


async def test_compose_is_commanded_as_shown(shell: Shell) -> None:
    """Each line names services that there are; those for the database run, on one.

    Starting the services is tested in tests/deployment/test_topology.py.
    """
    shown = [
        line
        for sample in blocks()
        if sample.file == "docs/hosting.md" and "docker compose" in sample.text
        for line in commands(sample.text)
    ]
    make, *compose = shown
    (shell.folder / "deploy").mkdir()
    shell.swaps = {"sh deploy/": f"sh {ROOT}/deploy/"}
    await shell.run(make)
    assert "POSTGRES_PASSWORD=" in (shell.folder / "deploy" / ".env").read_text()
    file = ROOT / "deploy" / "compose.yaml"
    services = yaml.safe_load(file.read_text())["services"]
    shell.swaps = {f"{_MAINTENANCE} ": "foremind ", "/data/": f"{shell.folder}/"}
    backups = 0
    for command in compose:
        assert command.startswith("docker compose --file deploy/compose.yaml "), command
        if command.startswith(_MAINTENANCE):
            await shell.run(command)
            backups += "db backup" in command
        else:
            subcommand, *words = command.split()[4:]
            assert subcommand in ("up", "build"), command
            assert {word for word in words if not word.startswith("--")} <= services.keys(), command
    assert len(list(shell.folder.glob("*.backup"))) == backups == 2


async def test_kubernetes_is_commanded_as_shown(shell: Shell) -> None:
    """The secrets are what kubectl makes; the other lines name what there is, but need a cluster.

    The manifests are tested in tests/deployment/test_kubernetes.py.
    """
    program("kubectl")
    (shell.folder / "site.pem").write_text("a certificate and its key")
    for command in commands(block("docs/scaling.md", "kubectl").text):
        if " create namespace " in command or " create secret " in command:
            made = yaml.safe_load(await shell.run(f"{command} --dry-run=client --output yaml"))
            assert made["kind"] in ("Namespace", "Secret")
        else:
            paths = re.findall(r"deploy/\S+", command)
            assert paths or "job/foremind-migrate" in command, command
            assert all((ROOT / path).exists() for path in paths), command


@pytest.mark.timeout(1200)
async def test_every_benchmark_can_be_run(shell: Shell) -> None:
    """Small evaluations are run; of what takes minutes, only the command is checked."""
    shutil.copy(ROOT / "tests" / "integration" / "harbour.toml", shell.folder)
    (shell.folder / "locomo.json").write_text(json.dumps(LOCOMO))
    for command in commands(block("docs/benchmarks.md", "foremind eval").text):
        program, *arguments = command.split()
        if program == "make":
            assert arguments[0] in _targets(), command
        elif command == "foremind eval layers":
            assert "precision" in await shell.run(command)
        elif arguments[:2] in (["eval", "locomo"], ["eval", "layers"]):
            shell.swaps = {"FILE": "locomo.json --json"}
            assert json.loads((await shell.run(command)).partition("{")[2].join("{ "))
        elif arguments[:2] == ["eval", "statements"]:
            shell.swaps = {"FILE": str(ROOT / "training/statements/sentences.jsonl")}
            assert "wrong_of_read" in await shell.run(command)
        elif arguments[:2] == ["eval", "worlds"]:
            narrator = Narrator(1)
            narrator.chapter(THINGS[0])
            stories = json.dumps({"stories": [narrator.story()]})
            (shell.folder / "stories.json").write_text(stories)
            shell.swaps = {"FILE": "stories.json"}
            assert "leak_rate" in await shell.run(command)
        elif command == "foremind eval FILE":
            shell.swaps = {"FILE": "harbour.toml"}
            assert "as configured" in await shell.run(command)
        else:
            assert arguments[1] in await shell.run(f"foremind {arguments[0]} --help"), command


@pytest.mark.timeout(1200)
async def test_languages_are_measured_as_shown(shell: Shell) -> None:
    """With a table, or as JSON with the fields that are named; and the set shown is measured."""
    (shell.folder / "nl.toml").write_text(block("docs/languages.md", "fillers = ").text, "utf-8")
    shell.swaps = {"FILE": "nl.toml"}
    first, second, own = commands(block("docs/languages.md", "foremind eval").text)
    assert "fillers kept" in await shell.run(first)
    reports = json.loads((shell.folder / "languages.json").read_text("utf-8"))
    assert len(reports) == 9
    (report,) = json.loads("[{" + (await shell.run(second)).partition("[\n  {")[2])
    assert report["language"] == "de"
    prose = (ROOT / "docs" / "languages.md").read_text("utf-8")
    assert [name for name in report if f"`{name}`" not in prose] == []
    assert re.search(r"nl\b.*%", await shell.run(own))


def test_the_receipt_is_what_erasing_answers() -> None:
    """With every field, of the right type."""
    shown = json.loads(block("docs/http.md", '{"memories"').text)
    assert list(shown) == [field.name for field in msgspec.structs.fields(ErasureReceipt)]
    msgspec.convert(shown, ErasureReceipt)


def test_events_are_reported_and_answered_as_shown() -> None:
    """With every field, of the right type."""
    for first, shape, element in (
        ('{"events": [{"id": "quest-7", "type"', EventsBody, EventBody),
        ('{"events": [{"id": "quest-7", "turn_id"', StoredEvents, EventView),
    ):
        shown = json.loads(block("docs/http.md", first).text)
        assert list(shown["events"][0]) == [field.name for field in msgspec.structs.fields(element)]
        msgspec.convert(shown, shape)


async def test_keys_are_made_as_shown(shell: Shell) -> None:
    """A token signed with the private key opens a session of a server with the public one."""
    *keys, serve, mint = commands(block("docs/access.md", "foremind keys new").text)
    for command in keys:
        await shell.run(command)
    minted = (await shell.run(mint)).strip().splitlines()[-1]
    async with shell.serving(serve) as url, connect(url) as client:
        opened = await client.open_session("wren", token=minted)
        assert opened["user"] == {"id": "player-17", "name": "Ana"}


@pytest.mark.parametrize(
    "shown", [block for block in blocks() if block.first.startswith("[settings")], ids=str
)
def test_settings_of_a_companion_are_valid(shown: Block, tmp_path: Path) -> None:
    """An unknown or wrong setting would be refused."""
    file = tmp_path / "mara.toml"
    file.write_text('slug = "mara"\nname = "Mara"\npersona = "You are Mara."\n' + shown.text)
    assert read_companion(file).name == "Mara"


def test_the_lorebook_shown_fires(tmp_path: Path) -> None:
    """By its keys, with the companion's name filled in."""
    file = tmp_path / "mara.toml"
    file.write_text(block("docs/lorebooks.md", 'slug = "mara"').text)
    mara = read_companion(file)
    book = Lorebook.parse(lorebook_in(mara.card))
    message = ScannedMessage(True, book.matcher.found_in("What happened in the storm?"))
    lore = activate(book, [message], len, 1_000, lambda text: text.replace("{{char}}", mara.name))
    assert [entry.id for entry in lore.entries] == ["storm"]
    assert "Mara rowed out alone" in lore.entries[0].text


async def test_memory_is_written_to_files_and_read_back(shell: Shell) -> None:
    """Nothing is edited, so nothing changes."""
    async with shell.serving("foremind serve") as url, connect(url) as client:
        await client.open_session("wren", user_id="player-17", name="Ana")
        await client.send("I promise to name my boat Zephyrine", "m1")
        await client.expect_all("response.done", "memory.stored")
    for command in commands(block("docs/layers.md", "foremind files").text):
        await shell.run(command)
    assert list((shell.folder / "player-17").glob("*.md"))


async def test_a_document_is_uploaded_with_curl(shell: Shell) -> None:
    """CI installs curl."""
    (command,) = commands(block("docs/layers.md", "curl").text)
    rules = ROOT / "tests" / "fuzzing" / "corpus" / "document" / "pdf"
    shutil.copy(rules, shell.folder / "rules.pdf")
    async with shell.serving("foremind serve"):
        answer = await shell.run(command)
    assert '"id"' in answer, answer


async def test_memory_tools_are_used_as_shown(shell: Shell) -> None:
    """By the official client, at the address that the configuration has."""
    (command,) = commands(block("docs/mcp.md", "FOREMIND_MCP").text)
    client = json.loads(block("docs/mcp.md", '{"mcpServers"').text)["mcpServers"]["foremind"]
    text = block("docs/mcp.md", "import asyncio").text
    assert client["url"] in text
    (shell.folder / "tools.py").write_text(_local(shell, text))
    async with shell.serving(command) as url:
        printed = await shell.run(f"{sys.executable} tools.py")
        address = url.replace("ws://", "http://").replace("/v1/ws", "/v1/mcp")
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            accept = {"accept": "application/json", **client["headers"]}
            assert (await http.post(address, json=ping, headers=accept)).status_code == 200
    assert printed.startswith("My sister Mira keeps bees ")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (package,) = project["optional-dependencies"]["mcp"]
    assert "A checkout and the container have the protocol's SDK" in _page("docs/mcp.md")
    locked = (ROOT / "requirements" / "runtime.txt").read_text("utf-8").splitlines()
    assert any(line.startswith(f"{package.partition('>')[0]}==") for line in locked)


async def test_turns_are_made_with_curl(shell: Shell) -> None:
    """Whole, with the fields that are shown, and as a stream of events."""
    (whole,) = commands(block("docs/turns.md", "curl -s ").text)
    (streamed,) = commands(block("docs/turns.md", "curl -sN").text)
    shown = json.loads(block("docs/turns.md", '{"turn_id"').text)
    async with shell.serving("foremind serve") as url:
        answer = json.loads(await shell.run(whole))
        await _until_remembered(url, "ana")
        events = await shell.run(streamed)
    assert '"content":"My sister Mira keeps bees"' in events
    assert answer.keys() == shown.keys()
    assert answer["replies"][0].keys() == shown["replies"][0].keys()
    names = re.findall(r"^event: (.*)$", events, re.M)
    assert names[:3] == ["context.ready", "message.accepted", "response.created"]
    assert set(names[3:-1]) == {"response.output_text.delta"}
    assert names[-1] == "response.done"


async def test_a_world_is_hosted_with_curl(shell: Shell) -> None:
    """Who is where, what happens, and what is asked about it."""
    async with shell.serving("foremind serve"):
        character = "curl -s -X PUT 'localhost:8770/v1/admin/companions"
        made = json.loads(await shell.run(block("docs/worlds.md", character).text))
        world = await shell.run(
            block("docs/worlds.md", "curl -s -X PUT localhost:8770/v1/worlds/vale -H").text
        )
        events = json.loads(await shell.run(block("docs/worlds.md", "curl -s -X POST").text))
        actions = "curl -s -X PUT localhost:8770/v1/worlds/vale/actions"
        declared = json.loads(await shell.run(block("docs/worlds.md", actions).text))
        triggers = "curl -s -X PUT localhost:8770/v1/worlds/vale/triggers"
        firing = json.loads(await shell.run(block("docs/worlds.md", triggers).text))
        turn = json.loads(await shell.run(block("docs/worlds.md", "curl -s localhost").text))
    assert made["settings"]["mind"] == "world"
    assert '"minds":["mara","wren"]' in world, world
    assert [event["duplicate"] for event in events["events"]] == [False, False, False]
    assert [action["name"] for action in declared["actions"]] == ["give", "look_behind"]
    assert [trigger["on"] for trigger in firing["triggers"]] == ["fire", "idle", "return"]
    assert turn["replies"][0]["companion"] == "wren"
    assert "The bridge collapsed" in str(turn["memories"])


async def test_a_turn_is_made_of_plain_bytes(start: StartServer) -> None:
    """Exactly as shown, with the length that is stated."""
    server = await start()
    text = block("docs/turns.md", "POST /v1/turns").text.rstrip()
    head, _, body = text.replace("8770", str(server.port)).partition("\n\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert b'"replies":[{"companion":"wren"' in answer


def _targets() -> set[str]:
    return set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))


async def _open(client: Client) -> dict[str, Any]:
    opened = await client.open_session("wren", user_id="u1", name="Ana")
    check_event(opened)
    return opened
