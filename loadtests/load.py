"""`make load`: run typists against a new server; write a report to loadtests/results/."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from foremind.app.configuration import load_settings
from foremind_eval.processes.server_process import running_server

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def main() -> None:
    """Run and write `load.json` and `load.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--typists", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=120)
    options = parser.parse_args()
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="load-", dir=settings.data_dir) as scratch:
        path = Path(scratch) / "report.json"
        with running_server(settings.in_scratch(Path(scratch))) as (url, _):
            _run_locust(url.removesuffix("/v1/ws"), options.typists, options.seconds, path)
        report = json.loads(path.read_text())
    report = {"typists": options.typists, "seconds": options.seconds, **report}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "load.json").write_text(json.dumps(report, indent=2) + "\n")
    text = _markdown(report)
    (RESULTS / "load.md").write_text(text)
    print(text)
    if any(figure["errors"] for figure in report["figures"].values()):
        sys.exit("There were errors.")


def _run_locust(host: str, typists: int, seconds: int, report: Path) -> None:
    command = [sys.executable, "-m", "locust", "-f", str(HERE / "locustfile.py"), "--headless"]
    command += ["-u", str(typists), "-r", "10", "-t", f"{seconds}s", "--only-summary"]
    command += ["--host", host]
    environment = os.environ | {"FOREMIND_LOAD_REPORT": str(report)}
    subprocess.run(command, env=environment, check=False)


def _markdown(report: dict[str, Any]) -> str:
    total = sum(report["contexts"].values()) or 1
    shares = ", ".join(
        f"{name} {count / total:.0%}" for name, count in sorted(report["contexts"].items())
    )
    lines = [
        "# Load",
        "",
        f"`make load`: {report['typists']} typists for {report['seconds']} seconds on one "
        "machine, client and server on the same two cores, with the offline model. "
        f"Contexts on Enter: {shares}.",
        "",
        "| what | count | errors | p50 ms | p95 ms | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {figure['count']} | {figure['errors']} | {figure['p50_ms']:.2f} "
        f"| {figure['p95_ms']:.2f} | {figure['p99_ms']:.2f} |"
        for name, figure in sorted(report["figures"].items())
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
