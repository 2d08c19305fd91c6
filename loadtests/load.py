"""`make load`: typists on a new server: with a companion each, in scenes of four, and of fifty.

A report is written to loadtests/results/.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from foremind.app.configuration import load_settings
from foremind.app.core import core
from foremind.domain.settings.settings import Settings
from foremind_eval.processes.server_process import cpu_s, running_server
from foremind_eval.seeding import put_minds

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_MINDS, _CROWD = 4, 50  # of a scene; those of a crowd are in one scene alone


def main() -> None:
    """Run and write `load.json` and `load.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--typists", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--scenes", type=int, default=20)
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "typists": options.typists,
        "seconds": options.seconds,
        "scenes": options.scenes,
        "minds": options.scenes * _CROWD,
        "one_to_one": _load(settings, options, 0, 0),
        "in_scenes": _load(settings, options, options.scenes, _MINDS),
        "in_crowds": _load(settings, options, options.scenes, _CROWD),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "load.json").write_text(json.dumps(report, indent=2) + "\n")
    text = _markdown(report)
    (RESULTS / "load.md").write_text(text)
    print(text)
    parts = (report["one_to_one"], report["in_scenes"], report["in_crowds"])
    if any(figure["errors"] for part in parts for figure in part["figures"].values()):
        sys.exit("There were errors.")


def _load(
    settings: Settings, options: argparse.Namespace, scenes: int, minds: int
) -> dict[str, Any]:
    """Run typists on a new server; return what was measured."""
    with tempfile.TemporaryDirectory(prefix="load-", dir=settings.data_dir) as scratch:
        path = Path(scratch) / "report.json"
        fresh = settings.in_scratch(Path(scratch))
        asyncio.run(_seed(fresh, scenes * minds))
        with running_server(fresh) as (url, process):
            before = cpu_s(process)
            variables = {
                "FOREMIND_LOAD_REPORT": str(path),
                "FOREMIND_SCENES": str(scenes),
                "FOREMIND_MINDS": str(minds),
            }
            _run_locust(url.removesuffix("/v1/ws"), options.typists, options.seconds, variables)
            spent = cpu_s(process) - before
        report: dict[str, Any] = json.loads(path.read_text())
    sent = sum(report["contexts"].values()) or 1
    return report | {"cpu_ms_per_message": round(spent / sent * 1000, 1)}


async def _seed(settings: Settings, minds: int) -> None:
    async with core(settings) as parts:  # their names come before that of `wren`
        await put_minds(parts, (f"mind-{number:04}" for number in range(minds)))


def _run_locust(host: str, typists: int, seconds: int, variables: dict[str, str]) -> None:
    command = [sys.executable, "-m", "locust", "-f", str(HERE / "locustfile.py"), "--headless"]
    command += ["-u", str(typists), "-r", "10", "-t", f"{seconds}s", "--only-summary"]
    command += ["--host", host]
    subprocess.run(command, env=os.environ | variables, check=False)


def _markdown(report: dict[str, Any]) -> str:
    lines = [
        "# Load",
        "",
        f"`make load`: {report['typists']} typists for {report['seconds']} seconds on one "
        "machine, client and server on the same two cores, with the offline model; first each with "
        f"one companion, then in {report['scenes']} scenes with {_MINDS} minds each, then in as "
        f"many with {_CROWD} each, {report['minds']:,} in all.",
        "",
        *_table("One to one", report["one_to_one"]),
        *_table("In scenes", report["in_scenes"]),
        *_table("In crowds", report["in_crowds"]),
    ]
    return "\n".join(lines)


def _table(title: str, report: dict[str, Any]) -> list[str]:
    total = sum(report["contexts"].values()) or 1
    shares = ", ".join(
        f"{name} {count / total:.0%}" for name, count in sorted(report["contexts"].items())
    )
    return [
        f"## {title}",
        "",
        f"Contexts on Enter: {shares}. CPU of the server: {report['cpu_ms_per_message']} ms a "
        "message.",
        "",
        "| what | count | errors | p50 ms | p95 ms | p99 ms |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {figure['count']} | {figure['errors']} | {figure['p50_ms']:.2f} "
            f"| {figure['p95_ms']:.2f} | {figure['p99_ms']:.2f} |"
            for name, figure in sorted(report["figures"].items())
        ),
        "",
    ]


if __name__ == "__main__":
    main()
