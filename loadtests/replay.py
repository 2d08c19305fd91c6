"""`make replay RECORDINGS=...`: recorded typing over real sockets; how often Enter finds a context.

Every typist is a player of its own with a thousand memories, types recorded sentences with the
recorded time between the keys, and presses Enter a fixed time after the last one. The same is done
once with eager preparation and once with pauses only; then the typing alone is done once more and
given up, which tells what preparing costs in CPU.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil

from foremind.app import core
from foremind.client import Client, connect
from foremind.domain.settings import Settings, load_settings
from foremind.evaluation.seeding import fill
from foremind.testing.server_process import running_server
from loadtests.recordings import Recording, read_recordings

RESULTS = Path(__file__).parent / "results"
_MEMORIES = 1_000  # of each typist
_SEEDED = 40  # players that `fill` makes
_LOADED_S = 2.0  # the index of a session that opens is loaded by then
_APART_S = 5.0  # typists begin within
_CHARS = 60  # of the message that costs are given for


def main() -> None:
    """Replay, print a table, write `replay.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--typists", type=int, default=20, choices=range(1, _SEEDED + 1))
    parser.add_argument("--sentences", type=int, default=8, help="that each types")
    parser.add_argument("--enter-ms", type=float, default=200, help="after the last key")
    options = parser.parse_args()
    typed = read_recordings(options.recordings)
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="replay-", dir=settings.data_dir) as scratch:
        seeded = settings.in_scratch(Path(scratch))
        asyncio.run(_seed(seeded))
        report: dict[str, Any] = {
            "typists": options.typists,
            "enter_ms": options.enter_ms,
            "recordings": len(typed),
            "eager": _replay(seeded, options, typed, eager=True),
            "pauses only": _replay(seeded, options, typed, eager=False),
        }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "replay.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


async def _seed(settings: Settings) -> None:
    async with core(settings) as parts:
        await fill(parts, parts.clock.now(), own=0, others=_SEEDED * _MEMORIES)


def _replay(
    settings: Settings, options: argparse.Namespace, typed: list[list[Recording]], *, eager: bool
) -> dict[str, Any]:
    environment = {"FOREMIND_EAGER": str(eager).lower()}
    with running_server(settings, environment) as (url, process):
        sent = asyncio.run(_all_type(url, options, typed, process, send=True))
        given_up = asyncio.run(_all_type(url, options, typed, process, send=False))
    total = sum(sent.outcomes.values())
    cuts = quantiles(sent.ready_ms, n=100)
    return {
        "sent": total,
        "errors": sent.errors,
        "outcomes": dict(sent.outcomes),
        "hit_share": round(sent.outcomes["hit"] / total, 4),
        "ready_ms": {
            "p50": round(cuts[49], 3),
            "p90": round(cuts[89], 3),
            "p99": round(cuts[98], 3),
        },
        f"typing_cpu_ms_per_{_CHARS}_chars": round(
            given_up.cpu_s / given_up.chars * _CHARS * 1000, 1
        ),
    }


class _Seen:
    """What came of a round of typing."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.ready_ms: list[float] = []
        self.errors = 0
        self.chars = 0
        self.cpu_s = 0.0


async def _all_type(
    url: str,
    options: argparse.Namespace,
    typed: list[list[Recording]],
    process: psutil.Process,
    *,
    send: bool,
) -> _Seen:
    seen = _Seen()
    async with asyncio.TaskGroup() as group:
        connected = asyncio.Barrier(options.typists + 1)
        for number in range(options.typists):
            sentences = list(typed[number % len(typed)])
            random.Random(number).shuffle(sentences)
            group.create_task(_typist(url, number, sentences, options, seen, connected, send=send))
        await connected.wait()
        before = process.cpu_times()
    after = process.cpu_times()
    seen.cpu_s = after.user + after.system - before.user - before.system
    return seen


async def _typist(
    url: str,
    number: int,
    sentences: list[Recording],
    options: argparse.Namespace,
    seen: _Seen,
    connected: asyncio.Barrier,
    *,
    send: bool,
) -> None:
    async with connect(url) as client:
        await client.open_session("seeded", user_id=f"neighbour {number}", name="N")
        answered = asyncio.Event()
        reader = asyncio.create_task(_read(client, seen, answered))
        await asyncio.sleep(_LOADED_S)
        await connected.wait()
        await asyncio.sleep(random.Random(number).uniform(0.0, _APART_S))
        for turn in range(options.sentences):
            recording = sentences[turn % len(sentences)]
            await _type(client, recording)
            await asyncio.sleep(options.enter_ms / 1000)
            seen.chars += len(recording.text)
            if send:
                answered.clear()
                await client.send(recording.text)
                await answered.wait()
            else:
                await client.send_raw({"type": "draft.clear"})
        reader.cancel()


async def _type(client: Client, recording: Recording) -> None:
    began = time.monotonic()
    for at, draft in recording.keys:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        await client.draft(draft)


async def _read(client: Client, seen: _Seen, answered: asyncio.Event) -> None:
    while True:
        event = await client.next_event()
        if event["type"] == "message.accepted":
            seen.outcomes[event["context"]] += 1
            seen.ready_ms.append(event["ready_ms"])
        seen.errors += event["type"] == "error"
        if event["type"] in ("response.done", "error"):
            answered.set()


if __name__ == "__main__":
    main()
