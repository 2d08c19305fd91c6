"""`make cluster`: what is lost or doubled under traffic if gateways, NATS or the database fail.

It also reports how long it takes until everyone talks again. Each combination of gateways and fault
runs on a new database. Players talk without a break, with the offline model, through the Python
client. After a fault, the next one waits until all of them talk again, and every gateway has
returned and hears the others.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from foremind.domain.clock import SystemClock
from foremind.domain.settings.settings import Settings, load_settings
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.storage.embedded_postgres import embedded_postgres
from foremind_eval.processes.nats_server import NatsServer
from loadtests.cluster.audit import audit
from loadtests.cluster.faults import FAULTS, Installation
from loadtests.cluster.players import Player, playing
from loadtests.cluster.topology import WorkerCluster

RESULT = Path(__file__).parents[1] / "results" / "cluster.json"
_PATIENCE_S = 120.0  # for everyone to talk again, and for the turns to be ingested
_POLL_S = 0.02
_CALM_S = (0.5, 2.0)  # between two faults


def main() -> None:
    """Run, print, write `cluster.json`; exit with 1 if anything was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", default="1,2,4", help="numbers of gateways, with commas")
    parser.add_argument("--faults", default=",".join(FAULTS), help="names of faults, with commas")
    parser.add_argument("--times", type=int, default=50, help="how often each fault happens")
    parser.add_argument("--players", type=int, default=8)
    parser.add_argument("--seed", type=int, default=18)
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    runs = [
        uvloop.run(_run(settings, gateways, fault, options))
        for gateways in map(int, options.gateways.split(","))
        for fault in options.faults.split(",")
    ]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"runs": runs}, indent=2) + "\n")
    if any(run["lost"] or run["doubled"] or run["gaps"] or run["errors"] for run in runs):
        sys.exit("Something was lost or doubled.")


async def _run(
    settings: Settings, gateways: int, fault: str, options: argparse.Namespace
) -> dict[str, Any]:
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=settings.data_dir) as scratch:
        folder, models, clock = Path(scratch), settings.models_dir.absolute(), SystemClock()
        with NatsServer() as nats:
            async with (
                Supervisor(clock, Metrics()) as supervisor,
                embedded_postgres(folder, supervisor, clock) as url,
                WorkerCluster(gateways, url, folder, models, nats.url) as cluster,
            ):
                hit = Installation(cluster, nats, folder / "postgres", url)
                async with playing(cluster.url, options.players) as players:
                    await _all_accepted(players, dict.fromkeys(players, 0))
                    started = time.monotonic()
                    before = sum(len(player.accepted) for player in players)
                    for _ in range(options.times):
                        await asyncio.sleep(rng.uniform(*_CALM_S))
                        since = {player: len(player.accepted) for player in players}
                        await FAULTS[fault](hit, rng)
                        await _all_accepted(players, since)
                        await cluster.wait_until_whole()
                    elapsed_s = time.monotonic() - started
                    messages = sum(len(player.accepted) for player in players) - before
                outcome = await audit(url, players, _PATIENCE_S)
    outages = sorted(outage for player in players for outage in player.outages)
    report = {
        "database": "postgresql",
        "announcements": "nats",
        "gateways": gateways,
        "fault": fault,
        "times": options.times,
        "players": options.players,
        "messages": outcome.messages,
        "messages_a_second": round(messages / elapsed_s, 1),
        "lost": len(outcome.lost),
        "doubled": len(outcome.doubled),
        "gaps": sum(len(player.gaps) for player in players),
        "errors": sum(len(player.errors) for player in players),
        "connections_lost": len(outages),
        "talking_again_s": _spread(outages) if outages else None,
    }
    print(json.dumps(report), flush=True)
    return report


def _spread(outages: list[float]) -> dict[str, float]:
    return {
        "p50": round(median(outages), 2),
        "p90": round(outages[int(0.9 * (len(outages) - 1))], 2),
        "max": round(outages[-1], 2),
    }


async def _all_accepted(players: list[Player], since: dict[Player, int]) -> None:
    """Wait until every player has had a message accepted since.

    Raises:
        TimeoutError: that took too long.
    """
    async with asyncio.timeout(_PATIENCE_S):
        for player in players:
            while len(player.accepted) == since[player]:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(_POLL_S)


if __name__ == "__main__":
    main()
