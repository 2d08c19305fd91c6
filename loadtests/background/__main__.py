"""`make background`: first word and duration of replies, with and without background work.

A real llama.cpp server with one slot and a real model of 135 million parameters. One player types,
pauses and presses Enter, with all layers, whose notes and summaries compete for the slot, and with
memories alone. The modes alternate, each round on a new server, so that drift affects both alike.
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

from foremind.app.configuration import load_settings
from foremind.domain.settings.setting_definitions import LAYERS
from foremind.domain.settings.settings import Settings
from foremind_client import Client, connect
from foremind_eval.processes.real_model import CONTEXT_TOKENS, real_model
from foremind_eval.processes.server_process import running_server
from loadtests.typing_model import TYPISTS

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
_BEFORE_ENTER_S = 0.3  # after the last key
_READING_S = 3.0  # after a reply, before the next key
_MAX_INTERVAL_S = 0.3  # between keys
_MESSAGES = (
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
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each mode")
    parser.add_argument("--messages", type=int, default=6, help="messages in a round")
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    times_ms: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    with (
        tempfile.TemporaryDirectory(prefix="background-", dir=settings.data_dir) as scratch,
        real_model() as url,
    ):
        for number in range(options.rounds):
            for mode, off in MODES.items():
                own = settings.in_scratch(Path(scratch) / f"{mode}-{number}")
                times_ms[mode] += _run_round(own, url, off, options.messages)
    report = {"messages": options.rounds * options.messages, **_compare(times_ms)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "background.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def _run_round(settings: Settings, url: str, off: str, messages: int) -> list[tuple[float, float]]:
    variables = {
        "FOREMIND_LLM_URL": url,
        "FOREMIND_LLM_MAX_TOKENS": "24",
        "FOREMIND_LLM_SLOTS": "1",
        "FOREMIND_LAYERS_OFF": off,
        "FOREMIND_CONTEXT_TOKENS": f"{CONTEXT_TOKENS}",
    }
    with running_server(settings, variables) as (socket, _):
        return asyncio.run(_converse(socket, messages))


async def _converse(url: str, messages: int) -> list[tuple[float, float]]:
    """Send messages; return the milliseconds from Enter to the first and to the last word."""
    times_ms = []
    async with connect(url) as client:
        await client.open_session("wren", user_id="ana", name="Ana")
        for number in range(messages):
            text = _MESSAGES[number % len(_MESSAGES)]
            times_ms.append(await _send_message(client, text, random.Random(number)))
            await _read_events(client, _READING_S)
    return times_ms[1:]  # the model's cache is cold at the first


async def _send_message(client: Client, text: str, rng: random.Random) -> tuple[float, float]:
    for interval_s, draft in TYPISTS[0].type(text, rng):
        await _read_events(client, min(interval_s, _MAX_INTERVAL_S))
        await client.draft(draft)
    await _read_events(client, _BEFORE_ENTER_S)
    entered = time.perf_counter()
    await client.send(text)
    first_word_ms = None
    while True:
        event = await client.next_event()
        elapsed_ms = (time.perf_counter() - entered) * 1000
        if event["type"] == "response.output_text.delta" and first_word_ms is None:
            first_word_ms = elapsed_ms
        if event["type"] == "response.done":
            assert first_word_ms is not None, event
            return first_word_ms, elapsed_ms


async def _read_events(client: Client, seconds: float) -> None:
    """Read and discard events for some time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await client.next_event()


def _compare(times_ms: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for index, name in enumerate(("first_word_ms", "reply_ms")):
        medians = {mode: median(pair[index] for pair in pairs) for mode, pairs in times_ms.items()}
        report[name] = {
            **{mode: round(value, 1) for mode, value in medians.items()},
            "with_of_without": round(medians["with"] / medians["without"], 4),
        }
    return report


if __name__ == "__main__":
    main()
