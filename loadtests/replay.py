"""`make replay RECORDINGS=...`: recorded typing over real sockets; how often Enter is a hit.

Every typist is a separate player with a thousand memories, types recorded sentences with the
recorded intervals between keys, and presses Enter a fixed time after the last key: of each sentence
as it was typed, and without the sign at its end, as many write in a chat. This runs with eager
prefetch and with pauses only; the same typing without Enter measures the CPU time of prefetching.
Before that, as many type in scenes of their own, each with four minds that know everybody.
"""

import argparse
import asyncio
import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx2
import psutil

from foremind.app.configuration import load_settings
from foremind.app.core import core
from foremind.domain.settings.settings import Settings
from foremind_client import Client, connect
from foremind_eval.processes.server_process import running_server
from foremind_eval.seeding import fill, put_minds
from loadtests.recordings import Recording, read_recordings

#: Opens the session of a typist: given the server's URL, the typist's number and its client.
_Begin = Callable[[str, int, Client], Awaitable[None]]
RESULTS = Path(__file__).parent / "results"
_MEMORIES_PER_TYPIST = 1_000
_MAX_TYPISTS = 40  # users that `fill` creates
_INDEX_LOAD_S = 2.0  # long enough for a session's index to be loaded
_STAGGER_S = 5.0  # typists start within this time
_NEVER_SENT_MS = 200.0  # after the last key of a draft that is discarded
_CHARS = 60  # length of message that CPU time is reported for


def main() -> None:
    """Replay, print what was measured, write `scenes.json` and `replay.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--typists", type=int, default=20, choices=range(1, _MAX_TYPISTS + 1))
    parser.add_argument("--sentences", type=int, default=8, help="typed by each typist")
    parser.add_argument(
        "--enter-ms",
        type=float,
        nargs="+",
        default=[80, 150, 200],
        help="delays of Enter after the last key",
    )
    options = parser.parse_args()
    recordings = read_recordings(options.recordings)
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="replay-", dir=settings.data_dir) as scratch:
        seeded = settings.in_scratch(Path(scratch))
        asyncio.run(_seed(seeded))
        replayed = {"typists": options.typists, "recordings": len(recordings)}
        _write("scenes.json", replayed | _in_scenes(seeded, options, recordings))
        eager = _replay(seeded, options, recordings, options.enter_ms, eager=True)
        late = _replay(seeded, options, recordings, options.enter_ms[-1:], eager=False)
        _write("replay.json", replayed | {"eager": eager, "pauses only": late})


def _write(name: str, report: dict[str, Any]) -> None:
    text = json.dumps(report, indent=2)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(text + "\n")
    print(text)


async def _seed(settings: Settings) -> None:
    async with core(settings) as parts:
        await fill(
            parts, parts.runtime.clock.now(), own=0, others=_MAX_TYPISTS * _MEMORIES_PER_TYPIST
        )
        for number in range(_MAX_TYPISTS):
            await put_minds(parts, _minds(number))


def _minds(number: int) -> list[str]:
    """Return the characters of a typist's scene."""
    return [f"{name}-{number}" for name in ("ada", "ben", "cleo", "dora")]


def _in_scenes(
    settings: Settings, options: argparse.Namespace, recordings: list[list[Recording]]
) -> dict[str, Any]:
    """Let typists talk to one companion, and then in scenes; each with memories of that only."""
    report = {}
    with running_server(settings) as (url, process):
        for name, begin in (
            ("one to one", partial(_talk, _minds(0)[0], "newcomer")),
            ("scenes of four minds", _join),
        ):
            typing = partial(_run_typists, url, options, recordings, process, begin=begin)
            measured = asyncio.run(typing(enter_ms=options.enter_ms[-1]))
            unsent = asyncio.run(typing(enter_ms=None))
            report[name] = _summary(measured) | {
                "cpu_ms_per_message": round(measured.cpu_s / measured.sent * 1000, 1),
                "typing_cpu_ms_per_draft": round(unsent.cpu_s / unsent.drafts * 1000, 1),
            }
    return report


def _replay(
    settings: Settings,
    options: argparse.Namespace,
    recordings: list[list[Recording]],
    enter_ms: list[float],
    *,
    eager: bool,
) -> dict[str, Any]:
    environment = {"FOREMIND_EAGER": str(eager).lower()}
    report: dict[str, Any] = {}
    chat = [[recording.without_final_sign() for recording in sentences] for sentences in recordings]
    with running_server(settings, environment) as (url, process):
        for delay_ms in enter_ms:
            run = partial(_run_typists, url, options, process=process, enter_ms=delay_ms)
            report[f"Enter after {delay_ms:.0f} ms"] = _summary(asyncio.run(run(recordings)))
            report[f"Enter after {delay_ms:.0f} ms, no sign at the end"] = _summary(
                asyncio.run(run(chat))
            )
        unsent = asyncio.run(_run_typists(url, options, recordings, process, enter_ms=None))
    cpu_ms = unsent.cpu_s / unsent.chars * _CHARS * 1000
    return report | {f"typing_cpu_ms_per_{_CHARS}_chars": round(cpu_ms, 1)}


def _summary(measured: "_Measurements") -> dict[str, Any]:
    total = measured.sent
    cuts = quantiles(measured.ready_ms, n=100)
    return {
        "sent": total,
        "errors": measured.errors,
        "outcomes": dict(measured.outcomes),
        "hit_share": round(measured.outcomes["hit"] / total, 4),
        "ready_ms": {
            "p50": round(cuts[49], 3),
            "p90": round(cuts[89], 3),
            "p99": round(cuts[98], 3),
        },
    }


class _Measurements:
    """What was measured while typists typed."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.ready_ms: list[float] = []
        self.errors = 0
        self.chars = 0
        self.drafts = 0
        self.cpu_s = 0.0

    @property
    def sent(self) -> int:
        """The number of messages that were answered."""
        return sum(self.outcomes.values())


async def _run_typists(
    url: str,
    options: argparse.Namespace,
    recordings: list[list[Recording]],
    process: psutil.Process,
    enter_ms: float | None,
    *,
    begin: _Begin | None = None,
) -> _Measurements:
    """Have every typist type; Enter follows `enter_ms` after the last key, or never.

    Args:
        begin: opens the session of each; by default with the companion that is seeded.
    """
    measured = _Measurements()
    begin = begin or partial(_talk, "seeded", "neighbour")
    async with asyncio.TaskGroup() as group:
        connected = asyncio.Barrier(options.typists + 1)
        for number in range(options.typists):
            sentences = list(recordings[number % len(recordings)])
            random.Random(number).shuffle(sentences)
            sentences = list(itertools.islice(itertools.cycle(sentences), options.sentences))
            group.create_task(_typist(url, number, sentences, enter_ms, measured, connected, begin))
        await connected.wait()
        before = process.cpu_times()
    after = process.cpu_times()
    measured.cpu_s = after.user + after.system - before.user - before.system
    return measured


async def _typist(
    url: str,
    number: int,
    sentences: list[Recording],
    enter_ms: float | None,
    measured: _Measurements,
    connected: asyncio.Barrier,
    begin: _Begin,
) -> None:
    async with connect(url) as client:
        await begin(url, number, client)
        answered = asyncio.Event()
        reader = asyncio.create_task(_read(client, measured, answered))
        await asyncio.sleep(_INDEX_LOAD_S)
        await connected.wait()
        await asyncio.sleep(random.Random(number).uniform(0.0, _STAGGER_S))
        for recording in sentences:
            await _type(client, recording)
            measured.chars += len(recording.text)
            measured.drafts += 1
            await asyncio.sleep((_NEVER_SENT_MS if enter_ms is None else enter_ms) / 1000)
            if enter_ms is not None:
                answered.clear()
                await client.send(recording.text)
                await answered.wait()
            else:
                await client.send_raw({"type": "draft.clear"})
        reader.cancel()


async def _talk(companion: str, user: str, _url: str, number: int, client: Client) -> None:
    # As a shipped client where nobody looks at contexts.
    await client.open_session(companion, user_id=f"{user} {number}", name="N", contexts=False)


async def _join(url: str, number: int, client: Client) -> None:
    """Join a scene of its own, with four minds."""
    player, scene = f"player {number}", f"room {number}"
    address = url.replace("ws://", "http://").replace("/v1/ws", "/v1/worlds/vale")
    async with httpx2.AsyncClient(base_url=address, timeout=60.0) as http:
        (await http.put("", json={})).raise_for_status()
        there = {"players": [player], "minds": _minds(number), "turn_order": {"replies": 1}}
        (await http.put(f"/scenes/{scene}", json=there)).raise_for_status()
    opening = {"type": "session.open", "world": "vale", "scene": scene, "contexts": False}
    await client.send_raw(opening | {"user": {"id": player, "name": "N"}})
    while (await client.next_event())["type"] != "scene.state":
        pass


async def _type(client: Client, recording: Recording) -> None:
    started = time.monotonic()
    for offset_s, draft in recording.keys:
        await asyncio.sleep(max(0.0, started + offset_s - time.monotonic()))
        await client.draft(draft)


async def _read(client: Client, measured: _Measurements, answered: asyncio.Event) -> None:
    while True:
        event = await client.next_event()
        if event["type"] == "message.accepted":
            measured.outcomes[event["context"]] += 1
            measured.ready_ms.append(event["ready_ms"])
        measured.errors += event["type"] == "error"
        if event["type"] in ("response.done", "error"):
            answered.set()


if __name__ == "__main__":
    main()
