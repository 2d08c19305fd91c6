"""`foremind models bench`: the latency of an embedding model."""

import msgspec
import typer
from rich import print as rich_print
from rich.table import Table

from foremind.app.configuration import load_settings
from foremind.cli.running import run, say
from foremind_eval.benchmarks.encoding import bench_embedding
from foremind_models import find_model


def models_bench(
    name: str | None = typer.Argument(None, help="A known model. Default: the configured model."),
) -> None:
    """Measure embedding latency by text length, int8 against fp32, and throughput."""
    settings = load_settings()
    manifest = find_model(name or settings.embedding_model, settings.models_dir)
    table = Table("tokens", "int8 p50 ms", "fp32 p50 ms", "fp32 / int8", "int8 texts/s")
    chosen = msgspec.structs.replace(settings, embedding_model=manifest.name)
    for figure in run(bench_embedding(chosen, say)):
        table.add_row(
            figure.name.removeprefix("embed ").removesuffix(" tokens"),
            f"{figure.p50:.2f}",
            f"{figure.baseline_p50:.2f}",
            f"{figure.ratio:.2f}",
            f"{1000 / figure.p50:.0f}",
        )
    rich_print(table)
