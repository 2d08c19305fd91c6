"""The event loop is never blocked for more than 50 ms; the fixture `start` checks every test."""

import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from foremind.memory.ingest import MemoryIngester
from foremind.memory.ingest_decisions import TurnJudge
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.test_message_path import send_and_wait
from tests.acceptance.world import world
from tests.conftest import (
    PATIENCE,
    StartServer,
    all_announcements_handled,
    eventually_async,
    owner_of,
)
from tests.watchdog import MAX_CALLBACK_S, Watchdog

_SYLLABLES = [f"{a}{b}{c}" for a in "ktmn" for b in "aeiou" for c in "lr"]


def _use_processor(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_the_watchdog_names_what_blocks_the_event_loop(
    start: StartServer, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the server's own callbacks count, not what a test does itself."""
    judge: Any = TurnJudge.judge

    def judge_slowly(*args: Any) -> Any:
        _use_processor(2 * MAX_CALLBACK_S)
        return judge(*args)

    client = await (await start()).session()
    _use_processor(2 * MAX_CALLBACK_S)
    await send_and_wait(client, "I promise to water your plants")
    assert watchdog.violations == []
    monkeypatch.setattr(TurnJudge, "judge", judge_slowly)
    await send_and_wait(client, "I promise to feed your cat too")
    assert watchdog.violations
    assert all(MemoryIngester.ingest_turns.__qualname__ in hold for hold in watchdog.violations)
    # The sampled stack ends in `judge_slowly`.
    assert all(f"< {Path(__file__).name}:" in hold for hold in watchdog.violations)
    watchdog.violations.clear()


async def test_searching_thousands_of_chunks_does_not_block_the_loop(start: StartServer) -> None:
    """A draft of hundreds of words, against thousands of chunks that contain some of them."""
    words = [f"{a}{b}" for a in _SYLLABLES for b in _SYLLABLES]
    async with world(start, model=False) as w:
        await w.talk("Hello")
        url = f"http://127.0.0.1:{w.server.port}/v1/companions/wren/documents?title=Menu&user=ana"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            body = " ".join(words * 500).encode()
            sent = await http.post(url, content=body, headers={"content-type": "text/plain"})
        assert sent.json()["chunks"] > 1000, sent.text
        await all_announcements_handled(w.server)
        assert await w.lines("library", " ".join(words[: len(words) // 2]))


def _long_text(number: int, chars: int) -> str:
    words = (f"I like {a}{b}{number} and" for a in _SYLLABLES for b in _SYLLABLES)
    return " ".join(words)[:chars]


async def test_the_longest_messages_do_not_block_the_loop(start: StartServer) -> None:
    """Each is scored in its context window, and processed again in the background.

    The ligature expands to four words, so that the messages have as many terms as possible.
    """
    texts = [
        f"I like ferry {n}. " + "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM} " * 7900
        for n in range(5)
    ]
    limits = {"max_text_chars": 16_000, "sends_per_s": 1000, "outbound_bytes": 2**26}
    async with world(start, model=False, **limits) as w:
        await w.talk(*texts)
        await w.next_day()
        memories = await owner_of(w.server.app.core).fetchval("SELECT count(*) FROM memories")
        assert memories == 5


async def test_scoring_a_reply_of_megabytes_does_not_block_the_loop(start: StartServer) -> None:
    """The operator may allow the model replies of that length."""
    reply = " ".join(_long_text(number, 16_000) for number in range(130))
    script = Script(reply=lambda _: [reply[n : n + 4000] for n in range(0, len(reply), 4000)])
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url, llm_max_tokens=200_000, outbound_bytes=16_000_000)
        client = await server.session()
        await client.send("What do you like?")
        done = await client.expect("response.done")
        assert done["text"] == reply
        owner = owner_of(server.app.core)

        async def all_ingested() -> bool:
            pending_turns = "SELECT count(*) FROM turns WHERE embedding IS NULL"
            waiting = "SELECT count(*) FROM background_steps WHERE step = 'ingest'"
            return not await owner.fetchval(pending_turns) and not await owner.fetchval(waiting)

        await eventually_async(all_ingested)


async def test_exporting_fifty_thousand_turns_does_not_block_the_loop(start: StartServer) -> None:
    """They are read and written in batches."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        await owner_of(w.server.app.core).execute(
            "INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status,"
            " content, created_at)"
            " SELECT relationship_id, session_id, user_id, speaker, 'many' || number, status,"
            " content, created_at FROM turns, generate_series(1, 50000) AS number"
            " WHERE speaker = 'user'"
        )
        assert len((await w.request("GET", "/export"))["turns"]) > 50_000
