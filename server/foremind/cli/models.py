"""`foremind models`: embedding models."""

from pathlib import Path

import typer
from rich import print as rich_print
from rich.table import Table

from foremind.cli.running import run, say
from foremind.domain.errors import ModelUnusable
from foremind.domain.settings import load_settings
from foremind.evaluation.benchmarks.encoding import bench_embedding
from foremind.retrieval.embedding.conversion import is_prepared, prepare_model
from foremind.retrieval.embedding.manifest_writer import Prefixes, describe_folder, describe_hub
from foremind.retrieval.embedding.model_registry import find_model, known_models

app = typer.Typer(help="List, fetch and measure embedding models.", no_args_is_help=True)


@app.command("list")
def list_models() -> None:
    """List the models that are known, and whether they are ready on this machine."""
    models_dir = load_settings().models_dir
    table = Table("name", "dimension", "tokens", "pooling", "licence", "ready")
    for manifest in known_models(models_dir).values():
        table.add_row(
            manifest.name,
            str(manifest.dimension),
            str(manifest.max_tokens),
            manifest.pooling,
            manifest.licence,
            "yes" if is_prepared(manifest, models_dir) else "no",
        )
    rich_print(table)


@app.command()
def pull(
    name: str | None = typer.Argument(None, help="A known model, or ORGANISATION/NAME of the hub."),
    folder: Path | None = typer.Option(None, "--from", help="Take the files from this folder."),
    query_prefix: str = typer.Option("", help="What the model wants before a query."),
    passage_prefix: str = typer.Option("", help="What the model wants before a passage."),
) -> None:
    """Fetch a model, convert it to ONNX, quantise it to int8 and check the result.

    Without NAME: the configured one. A model that no manifest describes is described as it is
    found, and from then on held to the hashes it had.
    """
    settings = load_settings()
    name = name or settings.embedding_model
    prefixes = Prefixes(query_prefix, passage_prefix)
    if folder is not None:
        manifest = describe_folder(name, folder, prefixes)
    else:
        try:
            manifest = find_model(name, settings.models_dir)
        except ModelUnusable:
            if "/" not in name:
                raise
            say(f"Asking the model hub for {name} ...")
            manifest = describe_hub(name, prefixes)
    if not is_prepared(manifest, settings.models_dir):
        prepare_model(manifest, settings.models_dir, say)
        say(f"{manifest.name} is ready: {manifest.dimension} dimensions.")


@app.command()
def bench(name: str | None = typer.Argument(None, help="A known model.")) -> None:
    """Measure latency by length, int8 beside fp32, and throughput, one text at a time."""
    settings = load_settings()
    manifest = find_model(name or settings.embedding_model, settings.models_dir)
    table = Table("tokens", "int8 p50 ms", "fp32 p50 ms", "fp32 / int8", "int8 texts a second")
    chosen = settings.model_copy(update={"embedding_model": manifest.name})
    for each in run(bench_embedding(chosen, say)):
        table.add_row(
            each.name.removeprefix("embed ").removesuffix(" tokens"),
            f"{each.p50:.2f}",
            f"{each.baseline_p50:.2f}",
            f"{each.ratio:.2f}",
            f"{1000 / each.p50:.0f}",
        )
    rich_print(table)
