"""`foremind bench`: benchmarks, each figure with a baseline from the same run."""

import tempfile
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from foremind.cli.running import run, say
from foremind.domain.settings import load_settings
from foremind.evaluation.benchmarks import BENCHMARKS, run_benchmarks
from foremind.evaluation.benchmarks.figures import Figure


def bench(
    name: str = typer.Argument(help=f"Benchmark to run: {', '.join(BENCHMARKS)}, or all."),
    json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
    out: Path | None = typer.Option(None, help="Also write the JSON to this file."),
) -> None:
    """Measure latency on this machine.

    Each figure is printed with a baseline from the same run. Absolute times depend on the machine
    and its load; compare the ratios.
    """
    if name != "all" and name not in BENCHMARKS:
        raise typer.BadParameter(f"expected one of {', '.join(BENCHMARKS)}, all")
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    names = list(BENCHMARKS) if name == "all" else [name]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=settings.data_dir) as scratch:
        figures = run(run_benchmarks(names, settings, Path(scratch), say))
    encoded = msgspec.json.format(msgspec.json.encode(figures), indent=2).decode()
    if out is not None:
        out.write_text(encoded + "\n")
    print(encoded) if json else Console().print(_table(figures))


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
