"""`make cluster`: what is lost or doubled under traffic if gateways, NATS or the database fail.

It also reports how long it takes until everyone talks again, and what a cluster does without
faults. Each combination of a database, a number of gateways and a fault runs on a new database.
Players talk without a break, with the offline model, through the Python client. After a fault, the
next one waits until all of them talk again, and every gateway has returned and hears the others.

A Citus cluster must be there, with its nodes on this machine: the environment variable
FOREMIND_TEST_CITUS names the database `postgres` of its coordinator.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from foremind.app.configuration import load_settings
from foremind.domain.settings.settings import Settings
from foremind_eval.processes.citus_cluster import COORDINATOR_VARIABLE, CitusCluster
from foremind_eval.processes.nats_server import NatsServer
from loadtests.cluster.audit import audit
from loadtests.cluster.databases import CitusDatabase, EmbeddedDatabase, embedded, on_citus
from loadtests.cluster.faults import FAULTS, Installation
from loadtests.cluster.players import Player, playing
from loadtests.cluster.report import baseline_report, fault_report, merged
from loadtests.cluster.topology import WorkerCluster

RESULT = Path(__file__).parents[1] / "results" / "cluster.json"
NO_FAULT = "none"  # instead of the name of a fault
_PATIENCE_S = 120.0  # for everyone to talk again, and for the turns to be ingested
_POLL_S = 0.02
_CALM_S = (0.5, 2.0)  # between two faults
_BEFORE_ENTER_S = 0.2  # without faults
_WARM_UP_S = 5.0


def main() -> None:
    """Run, print, write `cluster.json`; exit with 1 if anything was lost or doubled."""
    options = _parser().parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    RESULT.parent.mkdir(exist_ok=True)
    for database in options.databases.split(","):
        nodes = _citus() if database == "citus" else None
        for gateways in map(int, options.gateways.split(",")):
            for fault in options.faults.split(","):
                if nodes is None and fault != NO_FAULT and FAULTS[fault].only_on_citus:
                    continue
                kind = {"database": database, "gateways": gateways, "fault": fault}
                report = kind | uvloop.run(_run(settings, nodes, gateways, fault, options))
                print(json.dumps(report), flush=True)
                before = json.loads(RESULT.read_text())["runs"] if RESULT.exists() else []
                runs = merged(before, report)
                RESULT.write_text(json.dumps({"runs": runs}, indent=2) + "\n")
                if any(report[part] for part in ("lost", "doubled", "gaps", "errors")):
                    sys.exit("Something was lost or doubled.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", default="postgresql", help="postgresql, citus or both")
    parser.add_argument("--gateways", default="1,2,4", help="numbers of gateways, with commas")
    parser.add_argument(
        "--faults", default=",".join((NO_FAULT, *FAULTS)), help="names of faults, with commas"
    )
    parser.add_argument("--times", type=int, help="how often each fault happens")
    parser.add_argument("--players", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0, help="without faults")
    parser.add_argument("--seed", type=int, default=18)
    return parser


def _citus() -> CitusCluster:
    coordinator = os.environ.get(COORDINATOR_VARIABLE)
    if not coordinator:
        sys.exit(f"Set {COORDINATOR_VARIABLE} to the URL of a Citus coordinator, see --help.")
    return CitusCluster.of(coordinator)


async def _run(
    settings: Settings,
    nodes: CitusCluster | None,
    gateways: int,
    fault: str,
    options: argparse.Namespace,
) -> dict[str, Any]:
    async with _installation(settings, nodes, gateways) as hit:
        if fault == NO_FAULT:
            return await _without_fault(hit, options.players, options.seconds)
        times = options.times or FAULTS[fault].times
        return await _with_fault(hit, options.players, fault, times, random.Random(options.seed))


@asynccontextmanager
async def _installation(
    settings: Settings, nodes: CitusCluster | None, gateways: int
) -> AsyncIterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=settings.data_dir) as scratch:
        folder, models = Path(scratch), settings.models_dir.absolute()
        with NatsServer() as nats:
            async with (
                _database(folder, nodes) as database,
                WorkerCluster(gateways, database.url, folder, models, nats.url) as cluster,
            ):
                yield Installation(cluster, nats, database)


def _database(
    folder: Path, nodes: CitusCluster | None
) -> AbstractAsyncContextManager[EmbeddedDatabase | CitusDatabase]:
    return embedded(folder) if nodes is None else on_citus(nodes)


async def _without_fault(hit: Installation, count: int, seconds: float) -> dict[str, Any]:
    """Let players talk, each sending a finished draft after a moment; measure after a warm-up."""
    async with playing(hit.cluster.url, count, _BEFORE_ENTER_S) as players:
        await _all_accepted(players, dict.fromkeys(players, 0))
        await asyncio.sleep(_WARM_UP_S)
        since = {player: len(player.accepted) for player in players}
        await asyncio.sleep(seconds)
        report = baseline_report(since, seconds)
    return report | fault_report(await audit(hit.database.url, players, _PATIENCE_S), players)


async def _with_fault(
    hit: Installation, count: int, fault: str, times: int, rng: random.Random
) -> dict[str, Any]:
    async with playing(hit.cluster.url, count) as players:
        await _all_accepted(players, dict.fromkeys(players, 0))
        started = time.monotonic()
        before = sum(len(player.accepted) for player in players)
        for _ in range(times):
            await asyncio.sleep(rng.uniform(*_CALM_S))
            since = {player: len(player.accepted) for player in players}
            await FAULTS[fault].happen(hit, rng)
            await _all_accepted(players, since)
            await hit.cluster.wait_until_whole()
        elapsed_s = time.monotonic() - started
        messages = sum(len(player.accepted) for player in players) - before
    outcome = await audit(hit.database.url, players, _PATIENCE_S)
    return {
        "times": times,
        "messages_a_second": round(messages / elapsed_s, 1),
    } | fault_report(outcome, players)


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
