"""`make background`: a reply's first word and duration, with the layers' background work or not.

A real llama.cpp server with one slot and a real model of 135 million parameters. One player types,
rests and presses Enter: with all layers, whose notes and summaries want the same slot, and with
none but memories, in turn, each time with a server of its own, so that both meet the same machine.
"""

import argparse
import asyncio
import contextlib
import json
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from foremind.client import Client, connect
from foremind.domain.settings import LAYERS, Settings, load_settings
from foremind.testing.real_model import CONTEXT_TOKENS, real_model
from foremind.testing.server_process import running_server
from loadtests.typing_model import TYPISTS

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
_REST_S = 0.3  # between the last key and Enter
_READS_S = 3.0  # a player reads the reply before typing on
_LONGEST_KEY_S = 0.3
_SAID = (
    "I live in Porto, near the river.",
    "My sister Ines keeps bees.",
    "I am afraid of storms at sea.",
    "Next week I sail to Madeira.",
    "Do you remember my sister?",
    "I want to learn Greek this year.",
)
MODES = {
    "with": "[]",
    "without": json.dumps(sorted(set(LAYERS) - {"memories", "working"})),
}


def main() -> None:
    """Run, print, write `background.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="of each mode, in turn")
    parser.add_argument("--messages", type=int, default=6, help="of a round")
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    taken: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    with (
        tempfile.TemporaryDirectory(prefix="background-", dir=settings.data_dir) as scratch,
        real_model() as url,
    ):
        for number in range(options.rounds):
            for mode, off in MODES.items():
                own = settings.in_scratch(Path(scratch) / f"{mode}-{number}")
                taken[mode] += _round(own, url, off, options.messages)
    report = {"messages": options.rounds * options.messages, **_compared(taken)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "background.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def _round(settings: Settings, url: str, off: str, messages: int) -> list[tuple[float, float]]:
    variables = {
        "FOREMIND_LLM_URL": url,
        "FOREMIND_LLM_MAX_TOKENS": "24",
        "FOREMIND_LLM_SLOTS": "1",
        "FOREMIND_LAYERS_OFF": off,
        "FOREMIND_CONTEXT_TOKENS": f"{CONTEXT_TOKENS}",
    }
    with running_server(settings, variables) as (socket, _):
        return asyncio.run(_talk(socket, messages))


async def _talk(url: str, messages: int) -> list[tuple[float, float]]:
    """Say things; return the milliseconds from Enter to the first word and to the last."""
    taken = []
    async with connect(url) as client:
        await client.open_session("wren", user_id="ana", name="Ana")
        for number in range(messages):
            taken.append(await _say(client, _SAID[number % len(_SAID)], random.Random(number)))
            await _skim(client, _READS_S)
    return taken[1:]  # the first finds a model that has read nothing


async def _say(client: Client, text: str, draw: random.Random) -> tuple[float, float]:
    for wait, draft in TYPISTS[0].type(text, draw):
        await _skim(client, min(wait, _LONGEST_KEY_S))
        await client.draft(draft)
    await _skim(client, _REST_S)
    entered = time.perf_counter()
    await client.send(text)
    first = None
    while True:
        event = await client.next_event()
        now = (time.perf_counter() - entered) * 1000
        if event["type"] == "response.output_text.delta" and first is None:
            first = now
        if event["type"] == "response.done":
            assert first is not None, event
            return first, now


async def _skim(client: Client, seconds: float) -> None:
    """Let time pass while events are read."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await client.next_event()


def _compared(taken: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for at, name in enumerate(("first_word_ms", "reply_ms")):
        middle = {mode: median(time[at] for time in times) for mode, times in taken.items()}
        report[name] = {
            **{mode: round(value, 1) for mode, value in middle.items()},
            "with_of_without": round(middle["with"] / middle["without"], 4),
        }
    return report


if __name__ == "__main__":
    main()
