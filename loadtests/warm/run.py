"""`make warm`: time from Enter to the first word: cold, prefilled, or generated speculatively.

A real llama.cpp server with one slot and a model of random weights; players whose companions differ
only in `llm_ahead`. Three questions in one run, with the modes interleaved:

- shared: typists who pause a second before Enter, one after the other, so that another player used
  the slot last,
- alone: one typist, whose own last prompt is still in the slot,
- beside: a player who never pauses, together with one who does: does speculation delay the former?

The virtual environment of the model server is created once, in the data folder; building it takes a
quarter of an hour.
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
from foremind.domain.setting_groups import Ahead
from foremind.domain.settings import Settings, load_settings
from foremind.testing.server_process import free_port, quiet_server, running_server
from loadtests.environments import check, environment
from loadtests.typing_model import TYPISTS

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
MODES: tuple[Ahead, ...] = ("off", "prefill", "reply")
_BEFORE_ENTER_S = 1.0  # a pause after the last key
_HASTY_BEFORE_ENTER_S = 0.15  # of the player who never pauses
_HASTY_MAX_INTERVAL_S = 0.3  # between that player's keys
_MESSAGES_PER_BLOCK = 5  # of one mode before the next
_numbers = itertools.count()
_MESSAGES = (
    "Do you remember the storm?",
    "Tell me about the boats.",
    "Who lives behind the market?",
    "My sister likes the lighthouse.",
    "When does the ferry come in?",
    "I want to hear more of it.",
)
# Background work would compete for the slot.
_LAYERS_OFF = '["summary", "episodes", "topics", "scratchpad", "hot", "questions", "opening"]'
_FACT = "Wren knows that on day {} of the month the ferry brings {} crates of oranges to the quay. "


def main() -> None:
    """Run, print, write `warm.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=30, help="messages for each mode and question"
    )
    parser.add_argument("--questions", nargs="+", default=["shared", "alone", "beside"])
    parser.add_argument(
        "--python", type=Path, help="interpreter of an environment with requirements.txt"
    )
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
                "FOREMIND_LAYERS_OFF": _LAYERS_OFF,
            }
            scratch_settings = settings.in_scratch(scratch)
            asyncio.run(_store_companions(scratch_settings))
            with running_server(scratch_settings, variables) as (socket, _):
                asyncio.run(_measure(socket, options.messages, options.questions))


async def _store_companions(settings: Settings) -> None:
    persona = "You are Wren, who keeps the harbour and remembers everything that happens there. "
    persona += "".join(_FACT.format(day, day * 3) for day in range(1, 41))
    async with core(settings) as parts:
        for mode in MODES:
            companion = CompanionFile(
                mode, "Wren", persona, settings=CompanionSettings(llm_ahead=mode)
            )
            await parts.companions.put(companion)


async def _measure(url: str, messages: int, questions: list[str]) -> None:
    """Measure each question, which takes minutes, and print and write its result at once.

    Other questions keep their result of the previous run if it had as many messages.
    """
    measurements = {"shared": _shared, "alone": _alone, "beside": _beside}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "warm.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if report.get("messages") != messages:
        report = {"messages": messages}
    for question in questions:
        report[question] = _compare(await measurements[question](url, messages))
        print(json.dumps({question: report[question]}, indent=2), flush=True)
        path.write_text(json.dumps(report, indent=2) + "\n")


async def _shared(url: str, messages: int) -> dict[str, list[float]]:
    """Every message follows one of another player on the slot."""
    times_ms: dict[str, list[float]] = {mode: [] for mode in MODES}
    async with _players(url) as players:
        for number in range(messages):
            for mode, player in players.items():
                times_ms[mode].append(await player.send(number))
    return times_ms


async def _alone(url: str, messages: int) -> dict[str, list[float]]:
    """Every message follows one of the same player on the slot."""
    times_ms: dict[str, list[float]] = {mode: [] for mode in MODES}
    async with _players(url) as players:
        for mode, player in players.items():
            for number in range(messages):
                times_ms[mode].append(await player.send(number))
    return times_ms


async def _beside(url: str, messages: int) -> dict[str, list[float]]:
    """The messages of a player who never pauses, while another one does."""
    times_ms: dict[str, list[float]] = {mode: [] for mode in MODES}
    async with _players(url) as pausing, _players(url) as hasty:
        for number in range(0, messages, _MESSAGES_PER_BLOCK):
            for mode in MODES:
                times_ms[mode] += await _run_block(pausing[mode], hasty[mode], number)
    return times_ms


async def _run_block(pausing: "_Player", hasty: "_Player", first: int) -> list[float]:
    """Return the times of a block of hasty messages, while the other player sends some too."""
    finished = asyncio.Event()

    async def send_until_finished() -> None:
        for number in itertools.count(first):
            if finished.is_set():
                return
            await pausing.send(number)

    async with asyncio.TaskGroup() as group:
        group.create_task(send_until_finished())
        times_ms = [
            await hasty.send(number, hasty=True)
            for number in range(first, first + _MESSAGES_PER_BLOCK)
        ]
        finished.set()
    return times_ms


class _Player:
    """Types at human speed, and measures the time from Enter to the first word."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)

    async def send(self, number: int, *, hasty: bool = False) -> float:
        """Type a message and press Enter; return the milliseconds until the first word."""
        text = f"{number}. {_MESSAGES[number % len(_MESSAGES)]}"
        for interval_s, draft in TYPISTS[0].type(text, self._random):
            await self._read_events(min(interval_s, _HASTY_MAX_INTERVAL_S) if hasty else interval_s)
            await self._client.draft(draft)
        await self._read_events(_HASTY_BEFORE_ENTER_S if hasty else _BEFORE_ENTER_S)
        entered = time.perf_counter()
        await self._client.send(text)
        first_word_ms = None
        while True:
            event = await self._client.next_event()
            if event["type"] == "response.output_text.delta" and first_word_ms is None:
                first_word_ms = (time.perf_counter() - entered) * 1000
            if event["type"] == "response.done":
                if first_word_ms is None:
                    sys.exit(f"The reply was empty: {event}")
                return first_word_ms

    async def _read_events(self, seconds: float) -> None:
        """Read and discard events for some time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._client.next_event()


@asynccontextmanager
async def _players(url: str) -> AsyncIterator[dict[Ahead, _Player]]:
    """Open a session of a new player for each mode."""
    async with AsyncExitStack() as stack:
        players: dict[Ahead, _Player] = {}
        for seed, mode in enumerate(MODES):
            client = await stack.enter_async_context(connect(url))
            user_id = f"{mode}-{next(_numbers)}"
            await client.open_session(mode, user_id=user_id, name="Ana")
            players[mode] = _Player(client, seed)
        yield players


def _compare(times_ms: dict[str, list[float]]) -> dict[str, Any]:
    off = times_ms["off"]
    return {
        mode: {
            "first_word_ms": {
                "p50": round(median(times), 1),
                "p99": round(_percentile(times, 99), 1),
            },
            "p50_of_off": round(median(times) / median(off), 4),
            "p99_of_off": round(_percentile(times, 99) / _percentile(off, 99), 4),
        }
        for mode, times in times_ms.items()
    }


def _percentile(times: list[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


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
