"""`make load`: typists against a server of their own; the report goes to loadtests/results/."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from foremind.settings import load_settings

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
        port = _free_port()
        environment = os.environ | {
            "FOREMIND_DATA_DIR": scratch,
            "FOREMIND_MODELS_PATH": str(settings.models_dir.absolute()),
            "FOREMIND_LOG_LEVEL": "warning",
            "FOREMIND_LOAD_REPORT": str(Path(scratch) / "report.json"),
        }
        server = _start_server(port, environment)
        try:
            _run_locust(port, options.typists, options.seconds, environment)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
        report = json.loads((Path(scratch) / "report.json").read_text())
    report = {"typists": options.typists, "seconds": options.seconds, **report}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "load.json").write_text(json.dumps(report, indent=2) + "\n")
    text = _markdown(report)
    (RESULTS / "load.md").write_text(text)
    print(text)
    if any(each["errors"] for each in report["figures"].values()):
        sys.exit("There were errors.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_server(port: int, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "foremind", "serve", "--port", str(port)]
    server = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.1)
    server.kill()
    sys.exit("The server did not start.")


def _run_locust(port: int, typists: int, seconds: int, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "locust", "-f", str(HERE / "locustfile.py"), "--headless"]
    command += ["-u", str(typists), "-r", "10", "-t", f"{seconds}s", "--only-summary"]
    command += ["--host", f"ws://127.0.0.1:{port}"]
    subprocess.run(command, env=environment, check=False)


def _markdown(report: dict) -> str:
    total = sum(report["contexts"].values()) or 1
    shares = ", ".join(
        f"{name} {count / total:.0%}" for name, count in sorted(report["contexts"].items())
    )
    lines = [
        "# Load",
        "",
        f"`make load`: {report['typists']} typists for {report['seconds']} seconds on one "
        "machine, client and server on the same two cores, offline voice. "
        f"Contexts on Enter: {shares}.",
        "",
        "| what | count | errors | p50 ms | p95 ms | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {each['count']} | {each['errors']} | {each['p50_ms']:.2f} "
        f"| {each['p95_ms']:.2f} | {each['p99_ms']:.2f} |"
        for name, each in sorted(report["figures"].items())
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
