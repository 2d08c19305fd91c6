"""`foremind eval`: how well it remembers, measured on conversations with labelled evidence."""

import tempfile
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from foremind.app import core
from foremind.cli.running import run, say
from foremind.evaluation.dialogues import Dialogue
from foremind.evaluation.locomo import read_locomo
from foremind.evaluation.madial import read_madial
from foremind.evaluation.recall import Filters, RecallReport, measure_recall
from foremind.settings import Settings, load_settings

app = typer.Typer(help="Measure how well it remembers.", no_args_is_help=True)


_JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")
_SIGNIFICANCE = typer.Option(
    False, "--significance/--no-significance", help="Keep only significant turns."
)
_AGE_WINDOW = typer.Option(
    False, "--age-window/--no-age-window", help="Recall only what is recent enough."
)


@app.command()
def locomo(
    file: Path = typer.Argument(help="Conversations in the form of LoCoMo."),
    json: bool = _JSON,
    significance: bool = _SIGNIFICANCE,
    age_window: bool = _AGE_WINDOW,
) -> None:
    """Evidence recall on LoCoMo conversations, through the real store and search.

    The conversations go into a database of their own, which is removed afterwards.
    """
    _evaluate(read_locomo(file), Filters(significance, age_window), json)


@app.command()
def madial(
    folder: Path = typer.Argument(help="The folder of MADial-Bench's English files."),
    json: bool = _JSON,
    significance: bool = _SIGNIFICANCE,
    age_window: bool = _AGE_WINDOW,
) -> None:
    """Which memories a dialogue brings up, on MADial-Bench, through the real store and search."""
    _evaluate(read_madial(folder), Filters(significance, age_window), json)


def _evaluate(dialogues: list[Dialogue], filters: Filters, json: bool) -> None:
    report = run(_measure(load_settings(), dialogues, filters))
    if json:
        print(msgspec.json.encode(report).decode())
        return
    table = Table("recall@5", "recall@10", "recall@20", "questions", "stored", "search p50")
    table.add_row(
        f"{report.recall_at_5:.3f}",
        f"{report.recall_at_10:.3f}",
        f"{report.recall_at_20:.3f}",
        str(report.questions),
        f"{report.stored_fraction:.0%}",
        f"{report.search_ms_p50:.1f} ms",
    )
    Console().print(table)


async def _measure(settings: Settings, dialogues: list[Dialogue], filters: Filters) -> RecallReport:
    steps = sum(len(each.turns) + len(each.questions) for each in dialogues)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eval-", dir=settings.data_dir) as scratch:
        alone = settings.in_scratch(Path(scratch))
        async with core(alone, say=say) as built:
            with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
                task = bar.add_task("Telling and asking", total=steps)
                return await measure_recall(
                    built, dialogues, filters, lambda done: bar.advance(task, done)
                )
