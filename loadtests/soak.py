"""`make soak MINUTES=60`: look for leaks while typists connect, edit, cancel, drop and reconnect.

Memory after warm-up may grow by less than one percent an hour, and once all clients have
disconnected, tasks, connections, sessions and queues are back at their initial level. Now and then
a typist erases all its memories, so that stored and cached data does not grow all the time.

With `--abusers N`, N more do what costs memory as fast as the server lets them: texts as long as
they may be, always as new users, searches, wrong tokens, unknown paths. The report is `abuse.json`;
after an hour, what the process has taken must have levelled off.
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

from foremind.app.configuration import load_settings
from foremind_client import Client, Closed, connect
from foremind_eval.processes.server_process import running_server

RESULTS = Path(__file__).parent / "results"
_WARM_UP = 0.5  # share of the duration: bounded caches have to fill up first
_SAMPLE_S = 5.0
_CACHE_BYTES = 4_194_304  # small, so that the caches are full before the warm-up ends
_ERASE_SHARE = 0.03  # share of connections on which a typist erases its memories
_MAX_GROWTH_PERCENT = 1.0
_MIN_MINUTES = 60.0  # in a shorter run the slope is mostly noise
_RESUME_S = 10.0  # short, so that sessions end within the test
_FIRST_ROUND_S = 30.0
_SETTLE_S = 25.0
_GAUGES = (
    "foremind_sessions", "foremind_connections", "foremind_embedding_queue_depth",
    "foremind_waiting_jobs", "foremind_tasks",
)  # fmt: skip
_SUBJECTS = (
    "the harbour at night",
    "my brother's boat",
    "the old mill",
    "our promise",
    "the storm",
)


def main() -> None:
    """Run, print, write `soak.json`; exit with 1 if anything grew or was not released."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--typists", type=int, default=30)
    parser.add_argument("--abusers", type=int, default=0)
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=settings.data_dir) as scratch:
        own = settings.in_scratch(Path(scratch))
        bounds = {
            "FOREMIND_RESUME_S": str(_RESUME_S),
            "FOREMIND_INDEX_BYTES": str(_CACHE_BYTES),
            "FOREMIND_LAYERS_BYTES": str(_CACHE_BYTES),
        }
        with running_server(own, bounds) as (url, process):
            report = uvloop.run(_soak(url, process, options))
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(report, indent=2)
    name = "abuse.json" if options.abusers else "soak.json"
    (RESULTS / name).write_text(text + "\n")
    print(text)
    if report["left"] != report["floor"] or report["errors"]:
        sys.exit("Something was not released, or there were errors.")
    if options.minutes >= _MIN_MINUTES and report["growth_percent_an_hour"] > _MAX_GROWTH_PERCENT:
        sys.exit("Memory grows.")


async def _soak(url: str, process: psutil.Process, options: argparse.Namespace) -> dict[str, Any]:
    # A first round fills pools and imports modules, which stay.
    deadline = time.monotonic() + _FIRST_ROUND_S
    await _run_typists(url, options.typists, deadline, _zero_counts())
    await asyncio.sleep(_SETTLE_S)
    floor = await _gauges(url, process)
    counts = _zero_counts()
    started = time.monotonic()
    deadline = started + options.minutes * 60
    samples: list[tuple[float, float]] = []  # seconds since the start, resident KiB
    async with asyncio.TaskGroup() as group:
        group.create_task(_run_typists(url, options.typists, deadline, counts))
        for number in range(options.abusers):
            group.create_task(_abuse(url, number, deadline, counts))
        while time.monotonic() < deadline:
            await asyncio.sleep(_SAMPLE_S)
            samples.append((time.monotonic() - started, process.memory_info().rss / 1024))
    await asyncio.sleep(_SETTLE_S)
    left = await _gauges(url, process)
    warm = [sample for sample in samples if sample[0] > _WARM_UP * options.minutes * 60]
    slope, _ = np.polyfit([elapsed_s for elapsed_s, _ in warm], [rss for _, rss in warm], 1)
    median_kib = float(np.median([rss for _, rss in warm]))
    each_minute = samples[:: round(60 / _SAMPLE_S)]
    return {
        "minutes": options.minutes,
        "typists": options.typists,
        **counts,
        "resident_kib": round(median_kib),
        "resident_kib_each_minute": [round(rss) for _, rss in each_minute],
        "growth_percent_an_hour": round(float(slope) * 3600 / median_kib * 100, 2),
        "floor": floor,
        "left": left,
    }


async def _gauges(url: str, process: psutil.Process) -> dict[str, float]:
    """Return the gauges that must be back at their level once all clients have disconnected."""
    async with httpx2.AsyncClient() as http:
        text = (await http.get(f"{_http_url(url)}/metrics")).text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    connections = [
        connection for connection in process.net_connections() if connection.status == "ESTABLISHED"
    ]
    return {
        **{name: float(values[name]) for name in _GAUGES},
        "client_sockets": float(
            len([connection for connection in connections if connection.laddr])
        ),
    }


def _zero_counts() -> dict[str, int]:
    names = ("messages", "reconnects", "cancelled", "forgotten", "abused", "errors")
    return dict.fromkeys(names, 0)


async def _run_typists(url: str, typists: int, deadline: float, counts: dict[str, int]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(typists):
            group.create_task(_typist(url, number, deadline, counts))


def _http_url(url: str) -> str:
    return url.replace("ws://", "http://").removesuffix("/v1/ws")


async def _erase_memories(url: str, user_id: str, relationship_id: int) -> None:
    path = f"{_http_url(url)}/v1/relationships/{relationship_id}/memories"
    async with httpx2.AsyncClient(timeout=30) as http:
        (await http.delete(path, params={"user": user_id})).raise_for_status()


async def _typist(url: str, number: int, deadline: float, counts: dict[str, int]) -> None:
    rng = random.Random(number)
    resume: tuple[str, int] | None = None
    while time.monotonic() < deadline:
        with contextlib.suppress(Closed, OSError):
            async with connect(url) as client:
                opened = await client.open_session(
                    "wren", user_id=f"soak-{number}", name="S", resume=resume
                )
                resume = opened["session_id"], opened["seq"]
                counts["reconnects"] += 1
                if rng.random() < _ERASE_SHARE:
                    await _erase_memories(url, f"soak-{number}", opened["relationship_id"])
                    counts["forgotten"] += 1
                for _ in range(rng.randrange(1, 6)):
                    resume = resume[0], await _send_message(client, rng, counts)
        if rng.random() < 0.1:
            resume = None
        await asyncio.sleep(rng.uniform(0.1, 2.0))


async def _send_message(client: Client, rng: random.Random, counts: dict[str, int]) -> int:
    """Type and send; sometimes clear the draft or cancel. Return the last event's `seq`."""
    text = f"Do you remember {rng.choice(_SUBJECTS)}, number {rng.randrange(1000)}?"
    for end in range(1, len(text) + 1, 2):
        await client.draft(text[:end])
        await asyncio.sleep(rng.expovariate(12.0))
    if rng.random() < 0.1:
        await client.clear_draft()
    await client.send(text)
    while True:
        event = await client.next_event()
        if event["type"] == "error":
            counts["errors"] += event["error"]["param"] != "response_id"
            return int(event["seq"])
        if event["type"] == "response.created" and rng.random() < 0.1:
            await client.cancel(event["response_id"])
            counts["cancelled"] += 1
        if event["type"] == "response.done":
            counts["messages"] += 1
            return int(event["seq"])


async def _abuse(url: str, number: int, deadline: float, counts: dict[str, int]) -> None:
    """Do what costs memory, as new users all the time, and as fast as that is answered."""
    rng = random.Random(-1 - number)
    async with httpx2.AsyncClient(base_url=_http_url(url), timeout=60) as http:
        while time.monotonic() < deadline:
            user = f"abuser-{number}-{rng.getrandbits(64):x}"
            long = " ".join(f"{rng.getrandbits(40):x}" for _ in range(700))[:7900]
            with contextlib.suppress(Closed, OSError, httpx2.HTTPError):
                async with connect(url) as client:
                    opened = await client.open_session("wren", user_id=user, name=long[:60])
                    if opened["type"] != "session.opened":  # refused, as by a limit
                        counts["errors"] += 1
                        continue
                    for end in range(1000, len(long), 1000):
                        await client.draft(long[:end])
                    await client.send(long, rng.randbytes(60).hex())
                    await client.expect("response.done", "error")
                    path = f"/v1/relationships/{opened['relationship_id']}"
                    for _ in range(3):
                        draft = {"user": user, "draft": f"{rng.random()} {long[:2000]}"}
                        await http.get(f"{path}/context", params=draft)
                    await http.get(f"/v1/{rng.getrandbits(64):x}", params={"user": user})
                    await http.get(path, headers={"authorization": f"Bearer {long[:3000]}"})
                    counts["abused"] += 1


if __name__ == "__main__":
    main()
