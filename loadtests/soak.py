"""`make soak MINUTES=60`: typists who come, edit, cancel, drop out, come back; what is left?

Memory after warm-up may grow by less than one percent an hour, and once everybody has gone, tasks,
connections, sessions and queues are back where they were. Now and then a typist has everything
forgotten, so that what is stored, and may be held, does not grow all the while.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import uvloop

from foremind.client import Client, Closed, connect
from foremind.domain.settings import load_settings
from foremind.testing.server_process import running_server

RESULTS = Path(__file__).parent / "results"
_WARM_UP = 0.5  # share of the time: what is held within bounds has to fill them first
_SAMPLE_S = 5.0
_ROOM_BYTES = 4_194_304  # little, so that what may be held is held before the warm-up ends
_FORGETS = 0.03  # share of the times a typist comes after which it has everything forgotten
_MOST_GROWTH_PERCENT = 1.0
_AN_HOUR = 60.0  # minutes; in a shorter run the slope is mostly noise
_RESUME_S = 10.0  # short, so that sessions end within the test
_ONCE_S = 30.0
_SETTLE_S = 25.0
_GAUGES = (
    "foremind_sessions", "foremind_connections", "foremind_embedding_queue_depth",
    "foremind_waiting_jobs", "foremind_tasks",
)  # fmt: skip
_SAID = ("the harbour at night", "my brother's boat", "the old mill", "our promise", "the storm")


def main() -> None:
    """Run, print, write `soak.json`; exit with 1 where something grew or stayed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--typists", type=int, default=30)
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=settings.data_dir) as scratch:
        own = settings.in_scratch(Path(scratch))
        bounds = {
            "FOREMIND_RESUME_S": str(_RESUME_S),
            "FOREMIND_INDEX_BYTES": str(_ROOM_BYTES),
            "FOREMIND_LAYERS_BYTES": str(_ROOM_BYTES),
        }
        with running_server(own, bounds) as (url, process):
            report = uvloop.run(_soak(url, process, options))
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(report, indent=2)
    (RESULTS / "soak.json").write_text(text + "\n")
    print(text)
    if report["left"] != report["floor"] or report["errors"]:
        sys.exit("Something stayed.")
    if options.minutes >= _AN_HOUR and report["growth_percent_an_hour"] > _MOST_GROWTH_PERCENT:
        sys.exit("It grows.")


async def _soak(url: str, process: psutil.Process, options: argparse.Namespace) -> dict[str, Any]:
    # Once over first: pools fill and modules load, and stay.
    await _typed(url, options.typists, time.monotonic() + _ONCE_S, _nothing_seen())
    await asyncio.sleep(_SETTLE_S)
    floor = await _gauges(url, process)
    seen = _nothing_seen()
    began = time.monotonic()
    until = began + options.minutes * 60
    samples: list[tuple[float, float]] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(_typed(url, options.typists, until, seen))
        while time.monotonic() < until:
            await asyncio.sleep(_SAMPLE_S)
            samples.append((time.monotonic() - began, process.memory_info().rss / 1024))
    await asyncio.sleep(_SETTLE_S)
    left = await _gauges(url, process)
    warm = [sample for sample in samples if sample[0] > _WARM_UP * options.minutes * 60]
    slope, _ = np.polyfit([at for at, _ in warm], [rss for _, rss in warm], 1)
    usual = float(np.median([rss for _, rss in warm]))
    each_minute = samples[:: round(60 / _SAMPLE_S)]
    return {
        "minutes": options.minutes,
        "typists": options.typists,
        **seen,
        "resident_kib": round(usual),
        "resident_kib_each_minute": [round(rss) for _, rss in each_minute],
        "growth_percent_an_hour": round(float(slope) * 3600 / usual * 100, 2),
        "floor": floor,
        "left": left,
    }


async def _gauges(url: str, process: psutil.Process) -> dict[str, float]:
    """What may not stay once everybody has gone."""
    async with httpx2.AsyncClient() as http:
        text = (await http.get(f"{_address(url)}/metrics")).text
    read = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    sockets = [
        net_connection
        for net_connection in process.net_connections()
        if net_connection.status == "ESTABLISHED"
    ]
    return {
        **{name: float(read[name]) for name in _GAUGES},
        "client_sockets": float(len([socket for socket in sockets if socket.laddr])),
    }


def _nothing_seen() -> dict[str, int]:
    return {"messages": 0, "reconnects": 0, "cancelled": 0, "forgotten": 0, "errors": 0}


async def _typed(url: str, typists: int, until: float, seen: dict[str, int]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(typists):
            group.create_task(_typist(url, number, until, seen))


def _address(url: str) -> str:
    return url.replace("ws://", "http://").removesuffix("/v1/ws")


async def _forgotten(url: str, user: str, relationship: int) -> None:
    path = f"{_address(url)}/v1/relationships/{relationship}/memories"
    async with httpx2.AsyncClient(timeout=30) as http:
        (await http.delete(path, params={"user": user})).raise_for_status()


async def _typist(url: str, number: int, until: float, seen: dict[str, int]) -> None:
    draw = random.Random(number)
    resume: tuple[str, int] | None = None
    while time.monotonic() < until:
        with contextlib.suppress(Closed, OSError):
            async with connect(url) as client:
                opened = await client.open_session(
                    "wren", user_id=f"soak-{number}", name="S", resume=resume
                )
                resume = opened["session_id"], opened["seq"]
                seen["reconnects"] += 1
                if draw.random() < _FORGETS:
                    await _forgotten(url, f"soak-{number}", opened["relationship_id"])
                    seen["forgotten"] += 1
                for _ in range(draw.randrange(1, 6)):
                    resume = resume[0], await _say(client, draw, seen)
        if draw.random() < 0.1:
            resume = None
        await asyncio.sleep(draw.uniform(0.1, 2.0))


async def _say(client: Client, draw: random.Random, seen: dict[str, int]) -> int:
    """Type, edit, perhaps give up or cancel; return the number of the last event."""
    text = f"Do you remember {draw.choice(_SAID)}, number {draw.randrange(1000)}?"
    for end in range(1, len(text) + 1, 2):
        await client.draft(text[:end])
        await asyncio.sleep(draw.expovariate(12.0))
    if draw.random() < 0.1:
        await client.clear_draft()
    await client.send(text)
    while True:
        event = await client.next_event()
        if event["type"] == "error":
            seen["errors"] += event["error"]["param"] != "response_id"
            return int(event["seq"])
        if event["type"] == "response.created" and draw.random() < 0.1:
            await client.cancel(event["response_id"])
            seen["cancelled"] += 1
        if event["type"] == "response.done":
            seen["messages"] += 1
            return int(event["seq"])


if __name__ == "__main__":
    main()
