"""`make warm`: time from Enter to the first word: cold, read between messages, or ahead of Enter.

A real llama.cpp server with one slot and a real model of 135 million parameters; players who type
and press Enter 200 ms after the last key. Their companions differ only in what the model may read
before Enter:

- cold: nothing, as on a server that bills its tokens;
- off, prefill, reply: the values of `llm_ahead` on a server whose tokens cost nothing.

Three questions, each with the modes interleaved:

- alone: each player converses for a while, so that their own last prompt is still in the slot;
- shared: every message follows one of another player;
- distant: alone, with the model server 100 ms away, and players who look over what they have typed
  for two seconds before they press Enter.

Beside the times, the tokens that the model still had to read after Enter: these do not depend on
how busy the machine is.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx2

from foremind.app.configuration import load_settings
from foremind.app.core import core
from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind_client import Client, connect
from foremind_eval.processes.real_model import CONTEXT_TOKENS, real_model
from foremind_eval.processes.server_process import running_server
from loadtests.typing_model import TYPISTS

RESULTS = Path(__file__).parent / "results"
_KEY = "FOREMIND_LLM_KEY_WARM"  # the model server ignores it; with a key, tokens may cost money
MODES: dict[str, CompanionSettings] = {
    "cold": CompanionSettings(llm_ahead="off", llm_key_env=_KEY),
    "off": CompanionSettings(llm_ahead="off"),
    "prefill": CompanionSettings(llm_ahead="prefill"),
    "reply": CompanionSettings(llm_ahead="reply"),
}
QUESTIONS = ("alone", "shared", "distant")
_BEFORE_ENTER_S = 0.2  # after the last key
_LOOKING_OVER_S = 2.0
_DISTANCE_S = 0.1  # in each direction
_READING_S = 2.0  # after a reply, before the next key
_TOKENS_READ = "llamacpp:prompt_tokens_total "
_FACTS = (
    "My sister Lena got married in Faro last summer.",
    "I am saving for a small red boat.",
    "My grandmother taught me to bake plum cake.",
    "I work as a nurse at the harbour clinic.",
    "My dog Scout is afraid of thunder.",
    "I want to learn Greek before the winter.",
    "My best friend Tomas plays the accordion.",
    "I can't eat shellfish, it makes me ill.",
    "Last year I climbed the mountain behind the town.",
    "I promised my father to repair his old radio.",
)
_MESSAGES = (
    "Do you remember what my sister did last summer?",
    "I dreamt of the sea again last night",
    "What was the name of my dog?",
    "I had a long day at the clinic, so many people came in",
    "Tomas wants to visit us next week.",
    "should I tell my father that the radio is still broken",
    "What could I cook for Lena and her husband?",
    "I think I will buy the boat in spring.",
)


def main() -> None:
    """Run, print, write `warm.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=24, help="of each mode and question")
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS)
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="warm-", dir=settings.data_dir) as scratch,
        real_model() as url,
    ):
        variables = {
            "FOREMIND_LLM_MAX_TOKENS": "16",
            "FOREMIND_LLM_SLOTS": "1",
            "FOREMIND_CONTEXT_TOKENS": f"{CONTEXT_TOKENS}",
            # Background work would compete for the slot.
            "FOREMIND_LAYERS_OFF": '["profile", "summary", "episodes", "topics", "scratchpad", '
            '"hot", "questions", "opening"]',
            _KEY: "ignored",
        }
        scratch_settings = settings.in_scratch(Path(scratch))
        asyncio.run(_store_companions(scratch_settings))
        for question in options.questions or QUESTIONS:
            print(f"{question} ...", flush=True)
            answers = asyncio.run(
                _answers(question, scratch_settings, variables, url, options.messages)
            )
            _write(options.messages, question, _compare(answers))


async def _store_companions(settings: Settings) -> None:
    persona = (
        "You are Wren, who keeps the harbour of a small town and has known everybody in it for "
        "thirty years. You speak warmly, plainly and briefly, ask at most one question, and never "
        "pretend to know what you were not told."
    )
    async with core(settings) as parts:
        for mode, own in MODES.items():
            await parts.stores.companions.put(CompanionFile(mode, "Wren", persona, settings=own))


@dataclass(frozen=True, slots=True)
class _Answer:
    """How long after Enter the first word came, and how many tokens were read until then."""

    first_word_ms: float
    tokens_read: int


def _write(messages: int, question: str, result: dict[str, Any]) -> None:
    """Print the result of a question, and write it beside those of the same run."""
    path = RESULTS / "warm.json"
    RESULTS.mkdir(exist_ok=True)
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if report.get("messages") != messages:
        report = {"messages": messages}
    report[question] = result
    print(json.dumps({question: report[question]}, indent=2), flush=True)
    path.write_text(json.dumps(report, indent=2) + "\n")


async def _answers(
    question: str, settings: Settings, variables: dict[str, str], model_url: str, messages: int
) -> dict[str, list[_Answer]]:
    """Return each mode's answers, where modes take turns after some messages."""
    block = 1 if question == "shared" else len(_MESSAGES)
    distant = question == "distant"
    answers: dict[str, list[_Answer]] = {mode: [] for mode in MODES}
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_far_away(model_url)) if distant else model_url
        socket, _ = stack.enter_context(
            running_server(settings, {**variables, "FOREMIND_LLM_URL": url})
        )
        players = await stack.enter_async_context(_players(socket, model_url))
        for first in range(0, messages, block):
            for mode, player in players.items():
                for number in range(first, min(first + block, messages)):
                    text = _MESSAGES[number % len(_MESSAGES)]
                    answer = await player.send(
                        text, _LOOKING_OVER_S if distant else _BEFORE_ENTER_S
                    )
                    answers[mode].append(answer)
    return answers


@asynccontextmanager
async def _far_away(url: str) -> AsyncIterator[str]:
    """Serve what `url` does from further away: bytes take a while longer in either direction."""
    loop = asyncio.get_running_loop()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while piece := await source.read(65_536):
            loop.call_later(_DISTANCE_S, sink.write, piece)
        loop.call_later(_DISTANCE_S, sink.close)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = urlsplit(url)
        target = await asyncio.open_connection(upstream.hostname, upstream.port)
        await asyncio.gather(pump(reader, target[1]), pump(target[0], writer))

    server = await asyncio.start_server(forward, "127.0.0.1")
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{urlsplit(url).path}"
    finally:
        server.close()


class _Player:
    """Types at human speed, and measures the time from Enter to the first word.

    Args:
        model: a client of the model server.
    """

    def __init__(self, client: Client, model: httpx2.AsyncClient, seed: int) -> None:
        self._client = client
        self._model = model
        self._random = random.Random(seed)

    async def tell(self, text: str) -> None:
        """Send a message at once, and wait until it is remembered."""
        await self._client.send(text)
        awaited = {"response.done", "memory.stored"}
        while awaited:
            awaited.discard((await self._client.next_event())["type"])

    async def send(self, text: str, before_enter_s: float) -> _Answer:
        """Type a message, wait, press Enter, and wait for the reply."""
        await self._read_events(_READING_S)
        for interval_s, draft in TYPISTS[0].type(text, self._random):
            await self._read_events(interval_s)
            await self._client.draft(draft)
        await self._read_events(before_enter_s)
        read_before = await self._tokens_read()
        entered = time.perf_counter()
        await self._client.send(text)
        answer = None
        while True:
            event = await self._client.next_event()
            if event["type"] == "response.output_text.delta" and answer is None:
                first_word_ms = (time.perf_counter() - entered) * 1000
                answer = _Answer(first_word_ms, await self._tokens_read() - read_before)
            if event["type"] == "response.done":
                if answer is None:
                    sys.exit(f"The reply was empty: {event}")
                return answer

    async def _tokens_read(self) -> int:
        """Return how many tokens of prompts the model has read, what it had cached left out."""
        metrics = (await self._model.get("/metrics")).raise_for_status().text
        (value,) = (line for line in metrics.splitlines() if line.startswith(_TOKENS_READ))
        return int(float(value.removeprefix(_TOKENS_READ)))

    async def _read_events(self, seconds: float) -> None:
        """Read and discard events for some time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._client.next_event()


_numbers = itertools.count()


@asynccontextmanager
async def _players(url: str, model_url: str) -> AsyncIterator[dict[str, _Player]]:
    """Open a session of a new player for each mode, who has told the companion some facts."""
    async with AsyncExitStack() as stack:
        players: dict[str, _Player] = {}
        model = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=model_url.removesuffix("/v1"))
        )
        for mode in MODES:
            client = await stack.enter_async_context(connect(url))
            user_id = f"{mode}-{next(_numbers)}"
            await client.open_session(mode, user_id=user_id, name="Ana")
            # The same seed: all type the same messages at the same speed.
            players[mode] = _Player(client, model, seed=1)
            for fact in _FACTS:
                await players[mode].tell(fact)
        yield players


def _compare(answers: dict[str, list[_Answer]]) -> dict[str, Any]:
    times_ms = {mode: [answer.first_word_ms for answer in given] for mode, given in answers.items()}
    tokens = {mode: [answer.tokens_read for answer in given] for mode, given in answers.items()}
    cold = times_ms["cold"]
    return {
        mode: {
            "first_word_ms": {
                "p50": round(median(times), 1),
                "p90": round(_percentile(times, 90), 1),
            },
            "p50_of_cold": round(median(times) / median(cold), 4),
            "p90_of_cold": round(_percentile(times, 90) / _percentile(cold, 90), 4),
            "tokens_read": {"p50": median(tokens[mode]), "p90": _percentile(tokens[mode], 90)},
        }
        for mode, times in times_ms.items()
    }


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


if __name__ == "__main__":
    main()
