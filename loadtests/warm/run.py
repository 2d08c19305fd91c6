"""`make warm`: how long from Enter to the first word, with the model cold, prefilled, or ahead.

A real llama.cpp server with one slot and a model of random weights; players whose companions differ
only in `llm_ahead`. Three questions, one run, the modes in turn:

- shared: typists who rest a second before Enter, one after the other, so that each finds the slot
  used by somebody else,
- alone: one typist, whose own last prompt is still in the slot,
- beside: a player who never pauses, beside one who does: is anybody in the way?

The environment of the model server is made once, in the data folder; building it takes a quarter
of an hour.
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
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from foremind.app import core
from foremind.client import Client, connect
from foremind.domain.companion import CompanionFile, CompanionSettings
from foremind.domain.settings import Ahead, Settings, load_settings
from foremind.testing.server_process import free_port, quiet_server, running_server
from loadtests.environments import check, environment
from loadtests.typing_model import TYPISTS

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
MODES: tuple[Ahead, ...] = ("off", "prefill", "reply")
_REST_S = 1.0
_BLOCK = 5  # messages of one mode before the next has its turn
_LONGEST_KEY_S = 0.3  # of the player who never pauses
_numbers = itertools.count()
_SAID = (
    "Do you remember the storm?",
    "Tell me about the boats.",
    "Who lives behind the market?",
    "My sister likes the lighthouse.",
    "When does the ferry come in?",
    "I want to hear more of it.",
)
# What a model writes in the background would have the slot as well: measured without.
_WITHOUT = '["summary", "episodes", "topics", "scratchpad", "hot", "questions", "opening"]'
_FACT = "Wren knows that on day {} of the month the ferry brings {} crates of oranges to the quay. "


def main() -> None:
    """Run, print, write `warm.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=30, help="of each mode and question")
    parser.add_argument("--questions", nargs="+", default=["shared", "alone", "beside"])
    parser.add_argument("--python", type=Path, help="of an environment with requirements.txt")
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    folder = settings.data_dir / "warm-environment"
    python = options.python or environment(folder, HERE / "requirements.txt")
    with tempfile.TemporaryDirectory(prefix="warm-", dir=settings.data_dir) as name:
        scratch = Path(name)
        model = scratch / "model.gguf"
        check([str(python), "-m", "loadtests.warm.make_model", str(model)])
        with _model_server(python, model) as url:
            variables = {
                "FOREMIND_LLM_URL": url,
                "FOREMIND_LLM_MAX_TOKENS": "8",
                "FOREMIND_LLM_SLOTS": "1",
                "FOREMIND_LAYERS_OFF": _WITHOUT,
            }
            own = settings.in_scratch(scratch)
            asyncio.run(_put_companions(own))
            with running_server(own, variables) as (socket, _):
                asyncio.run(_measure(socket, options.messages, options.questions))


async def _put_companions(settings: Settings) -> None:
    persona = "You are Wren, who keeps the harbour and remembers everything that happens there. "
    persona += "".join(_FACT.format(day, day * 3) for day in range(1, 41))
    async with core(settings) as parts:
        for mode in MODES:
            own = CompanionSettings(llm_ahead=mode)
            await parts.companions.put(CompanionFile(mode, "Wren", persona, settings=own))


async def _measure(url: str, messages: int, questions: list[str]) -> None:
    """Ask one question after the other; each takes minutes, and is printed and written at once.

    What is not asked keeps the answer of the run before, where that had as many messages.
    """
    asked = {"shared": _shared, "alone": _alone, "beside": _all_beside}
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "warm.json"
    report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if report.get("messages") != messages:
        report = {"messages": messages}
    for question in questions:
        report[question] = _compared(await asked[question](url, messages))
        print(json.dumps({question: report[question]}, indent=2), flush=True)
        file.write_text(json.dumps(report, indent=2) + "\n")


async def _shared(url: str, messages: int) -> dict[str, list[float]]:
    """Each finds the slot used by somebody else."""
    taken: dict[str, list[float]] = {mode: [] for mode in MODES}
    async with _players(url) as players:
        for number in range(messages):
            for mode, player in players.items():
                taken[mode].append(await player.say(number, rest_s=_REST_S))
    return taken


async def _alone(url: str, messages: int) -> dict[str, list[float]]:
    """Each finds its own last prompt in the slot."""
    taken: dict[str, list[float]] = {mode: [] for mode in MODES}
    async with _players(url) as players:
        for mode, player in players.items():
            for number in range(messages):
                taken[mode].append(await player.say(number, rest_s=_REST_S))
    return taken


async def _all_beside(url: str, messages: int) -> dict[str, list[float]]:
    """One never pauses, beside one who does."""
    taken: dict[str, list[float]] = {mode: [] for mode in MODES}
    async with _players(url) as resting, _players(url) as hasty:
        for number in range(0, messages, _BLOCK):
            for mode in MODES:
                taken[mode] += await _beside(resting[mode], hasty[mode], number)
    return taken


async def _beside(resting: "_Player", hasty: "_Player", number: int) -> list[float]:
    """Let one rest before each Enter until the other, who never does, has said a few things."""
    over = asyncio.Event()

    async def rest_and_speak() -> None:
        turn = 0
        while not over.is_set():
            await resting.say(number + turn, rest_s=_REST_S)
            turn += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(rest_and_speak())
        taken = [await hasty.say(number + each, rest_s=0.15) for each in range(_BLOCK)]
        over.set()
    return taken


class _Player:
    """Types as people do, and takes the time from Enter to the first word."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)

    async def say(self, number: int, *, rest_s: float) -> float:
        """Type a sentence, rest, press Enter; return the milliseconds until the first word."""
        text = f"{number}. {_SAID[number % len(_SAID)]}"
        hasty = rest_s < _REST_S
        for wait, draft in TYPISTS[0].type(text, self._random):
            await self._skim(min(wait, _LONGEST_KEY_S) if hasty else wait)
            await self._client.draft(draft)
        await self._skim(rest_s)
        entered = time.perf_counter()
        await self._client.send(text)
        first = None
        while True:
            event = await self._client.next_event()
            if event["type"] == "response.output_text.delta" and first is None:
                first = (time.perf_counter() - entered) * 1000
            if event["type"] == "response.done":
                if first is None:
                    sys.exit(f"No word came: {event}")
                return first

    async def _skim(self, seconds: float) -> None:
        """Let time pass while events are read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._client.next_event()


@asynccontextmanager
async def _players(url: str) -> AsyncIterator[dict[Ahead, _Player]]:
    """One new player for each mode."""
    async with AsyncExitStack() as stack:
        players: dict[Ahead, _Player] = {}
        for seed, mode in enumerate(MODES):
            client = await stack.enter_async_context(connect(url))
            name = f"{mode}-{next(_numbers)}"
            await client.open_session(mode, user_id=name, name="Ana")
            players[mode] = _Player(client, seed)
        yield players


def _compared(taken: dict[str, list[float]]) -> dict[str, Any]:
    off = taken["off"]
    return {
        mode: {
            "first_word_ms": {
                "p50": round(median(times), 1),
                "p99": round(_percentile(times, 99), 1),
            },
            "p50_of_off": round(median(times) / median(off), 4),
            "p99_of_off": round(_percentile(times, 99) / _percentile(off, 99), 4),
        }
        for mode, times in taken.items()
    }


def _percentile(times: list[float], share: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * share // 100)]


@contextmanager
def _model_server(python: Path, model: Path) -> Iterator[str]:
    port = free_port()
    command = [str(python), "-m", "llama_cpp.server", "--model", str(model), "--port", str(port)]
    command += ["--n_ctx", "4096", "--n_threads", "2", "--chat_format", "chatml"]
    command += ["--interrupt_requests", "False"]
    with quiet_server(command, port):
        yield f"http://127.0.0.1:{port}/v1"


if __name__ == "__main__":
    main()
