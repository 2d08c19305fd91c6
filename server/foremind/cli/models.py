"""`foremind models`: lists, fetches, calibrates and measures embedding models."""

from pathlib import Path

import typer
from rich import print as rich_print
from rich.table import Table

from foremind.app.configuration import load_settings
from foremind.cli.main import add_command
from foremind.cli.running import say
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind_models import (
    Manifest,
    ModelUnusable,
    Prefixes,
    calibrate_aloud,
    describe_folder,
    describe_hub,
    find_model,
    is_prepared,
    known_models,
    needs_calibration,
    prepare_model,
    ready_model,
    shipped_models,
    shipped_name,
)

app = typer.Typer(
    help="List, fetch, calibrate and benchmark embedding models.", no_args_is_help=True
)


@app.command("list")
def list_models() -> None:
    """List the known models, and whether they are ready on this machine."""
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
    name: str | None = typer.Argument(
        None, help="A known model, or ORGANISATION/NAME on the hub. Default: the configured model."
    ),
    folder: Path | None = typer.Option(
        None, "--from", help="Read the model's files from this folder instead of the hub."
    ),
    query_prefix: str | None = typer.Option(
        None, help="Prefix that the model expects before a query."
    ),
    passage_prefix: str | None = typer.Option(
        None, help="Prefix that the model expects before a passage."
    ),
) -> None:
    """Fetch a model, convert it to ONNX, quantise it to int8, verify and calibrate the result.

    A model without a manifest gets one, with the hashes of its files; from then on they must match.
    """
    settings = load_settings()
    name = name or settings.embedding_model
    prefixes = Prefixes(query_prefix or "", passage_prefix or "")
    if folder is not None:
        manifest = describe_folder(name, folder, prefixes)
    else:
        manifest = _find_or_look_up(name, settings.models_dir, prefixes)
    for of, given, known in (
        ("query", query_prefix, manifest.query_prefix),
        ("passage", passage_prefix, manifest.passage_prefix),
    ):
        if given is not None and given != known:
            raise ModelUnusable(_other_prefix(manifest, settings.models_dir, f"{of} {known!r}"))
    if is_prepared(manifest, settings.models_dir) and not needs_calibration(
        manifest, settings.models_dir, TEXT_FEATURES
    ):
        return
    ready_model(manifest, settings.models_dir, TEXT_FEATURES, say)
    say(f"{manifest.name} is ready: {manifest.dimension} dimensions.")


@app.command("calibrate")
def calibrate_model(
    name: str | None = typer.Argument(None, help="A known model. Default: the configured one."),
) -> None:
    """Measure what a model's cosines mean, and train its classifiers, on texts that ship with it.

    `foremind models pull` and `foremind serve` do the same, once. A running server uses it when it
    is restarted.
    """
    settings = load_settings()
    manifest = find_model(name or settings.embedding_model, settings.models_dir)
    model = prepare_model(manifest, settings.models_dir, say)
    try:
        calibrate_aloud(model, TEXT_FEATURES, say)
    except OSError as error:
        raise ModelUnusable(f"The calibration cannot be stored: {error}") from error


def _other_prefix(manifest: Manifest, models_dir: Path, known: str) -> str:
    """Say what to do to use a known model with another prefix than its own."""
    used = f"{manifest.name} is used with the prefix for a {known}, on which its vectors depend."
    if manifest.name in shipped_models():
        return (
            f"{used} To use another, pull it under another name: foremind models pull NAME "
            "--from FOLDER"
        )
    folder = models_dir / manifest.folder_name
    return (
        f"{used} To use another, remove {folder} and pull it again; a database with vectors of "
        "the model will refuse it then."
    )


def _find_or_look_up(name: str, models_dir: Path, prefixes: Prefixes) -> Manifest:
    try:
        return find_model(name, models_dir)
    except ModelUnusable:
        if "/" not in name or shipped_name(name) is not None:
            raise
    say(f"Looking up {name} on the model hub ...")
    return describe_hub(name, prefixes)


add_command(
    app,
    "bench",
    "foremind_eval.cli.models_bench:models_bench",
    "Measure embedding latency and throughput (part of foremind-eval).",
)
