"""`foremind bench`: benchmarks, each figure with a baseline from the same run."""

import tempfile
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from foremind.app.configuration import load_settings
from foremind.cli.running import run, say
from foremind_eval.benchmarks import BENCHMARKS, run_benchmarks
from foremind_eval.benchmarks.figures import Figure
from foremind_eval.capacity.model import Prices
from foremind_eval.cli.capacity_report import measure_capacity, print_report
from foremind_eval.cli.output import output_json


def bench(
    name: str = typer.Argument(
        help=f"Benchmark to run: {', '.join(BENCHMARKS)}, capacity, or all."
    ),
    json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
    out: Path | None = typer.Option(None, help="Also write the JSON to this file."),
    message_interval: float = typer.Option(
        25.0, min=1.0, help="capacity: seconds between a player's messages."
    ),
    memories: int = typer.Option(1_000, min=0, help="capacity: memories of a player."),
    core_price: float = typer.Option(15.0, min=0.0, help="capacity: price of a core for a month."),
    gib_price: float = typer.Option(3.0, min=0.0, help="capacity: price of a GiB for a month."),
    cores_per_machine: int = typer.Option(16, min=1, help="capacity: cores of a database node."),
    check: bool = typer.Option(
        False, "--check", help="capacity: compare with measured loads (half an hour)."
    ),
) -> None:
    """Measure latency on this machine, or what a number of players costs.

    Each figure is printed with a baseline from the same run. Absolute times depend on the machine
    and its load; compare the ratios. `capacity` measures what each kind of work takes, and computes
    the gateways, memory, database nodes and money for 1,000 to 500,000 players from it.
    """
    if name not in (*BENCHMARKS, "capacity", "all"):
        raise typer.BadParameter(f"expected one of {', '.join(BENCHMARKS)}, capacity, all")
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    names = list(BENCHMARKS) if name == "all" else [name]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=settings.data_dir) as scratch:
        if name == "capacity":
            prices = Prices(core_price, gib_price, cores_per_machine)
            report = run(
                measure_capacity(
                    settings, Path(scratch), prices, message_interval, memories, say, check=check
                )
            )
            if not output_json(report, out, json=json):
                print_report(report)
        else:
            figures = run(run_benchmarks(names, settings, Path(scratch), say))
            if not output_json(figures, out, json=json):
                Console().print(_table(figures))


def _table(figures: list[Figure]) -> Table:
    table = Table("figure", "unit", "p50", "p90", "p99", "baseline", "baseline p50", "ratio")
    for figure in figures:
        table.add_row(
            figure.name,
            figure.unit,
            f"{figure.p50:.2f}",
            f"{figure.p90:.2f}",
            f"{figure.p99:.2f}",
            figure.baseline,
            f"{figure.baseline_p50:.2f}",
            f"{figure.ratio:.1f}",
        )
    return table
