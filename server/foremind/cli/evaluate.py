"""`foremind eval`: how well it remembers, measured on conversations with labelled evidence."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from foremind.app import Core, core
from foremind.cli.running import run, say
from foremind.domain.clock import Clock
from foremind.domain.errors import InvalidFile
from foremind.domain.settings import Settings, load_settings
from foremind.evaluation.chart import draw, recall_bar
from foremind.evaluation.dialogues import Dialogue
from foremind.evaluation.labelled_file import read_labelled
from foremind.evaluation.layer_labels import (
    A_YEAR,
    LabelledRelationship,
    LabelReport,
    LabelScore,
    measure_labels,
    read_life,
)
from foremind.evaluation.locomo import read_locomo
from foremind.evaluation.longitudinal import LongitudinalReport, measure_life
from foremind.evaluation.madial import read_madial
from foremind.evaluation.recall import RecallReport, measure, steps
from foremind.evaluation.variants import Variant, ablation, one_variant
from foremind.testing.manual_clock import ManualClock

_A_LIFE = "layers"
_READERS = {"locomo": read_locomo, "madial": read_madial}


def evaluate(
    what: str = typer.Argument(
        help="locomo, madial, a file in LoCoMo's form or a labelled conversation of your own, or "
        "layers: what the layers hold of a labelled life, or with LoCoMo's file, what each costs "
        "and is worth, one session a day."
    ),
    path: Path | None = typer.Argument(
        None, help="LoCoMo's file, MADial-Bench's folder, or for layers a labelled life (TOML)."
    ),
    json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
    significance: bool = typer.Option(
        True, "--significance/--no-significance", help="Keep only significant turns."
    ),
    age_window: bool = typer.Option(
        False, "--age-window/--no-age-window", help="Recall only what is recent enough."
    ),
    ablate: bool = typer.Option(
        False, "--ablate", help="Compare with simpler ways, each improvement switched on in turn."
    ),
    days: int = typer.Option(90, "--days", help="For layers: the most days that are lived."),
    plot: Path | None = typer.Option(None, "--plot", help="Write a picture (SVG) here."),
) -> None:
    """Measure how well it remembers, through the real store and search.

    The conversations go into a database of their own, which is removed afterwards.
    """
    if what == _A_LIFE and (path is None or path.suffix == ".toml"):
        held = run(_compare(load_settings(), read_life(path or A_YEAR)))
        if json:
            print(msgspec.json.encode(held).decode())
        else:
            _show_labels(held)
        return
    if what == _A_LIFE:
        life = run(_live(load_settings(), read_dialogues("locomo", path), days))
        print(msgspec.json.encode(life).decode()) if json else _show(life)
        return
    dialogues = read_dialogues(what, path)
    variants = (
        ablation(age_window=age_window)
        if ablate
        else [one_variant(significance=significance, age_window=age_window)]
    )
    reports = run(_measure(load_settings(), dialogues, variants))
    if plot is not None:
        plot.write_text(
            draw(
                [recall_bar(report) for report in reports], f"{what}: recall@10, with 95% intervals"
            ),
            "utf-8",
        )
    if json:
        print(msgspec.json.encode(reports if ablate else reports[0]).decode())
    else:
        Console().print(_table(reports))


def read_dialogues(what: str, path: Path | None) -> list[Dialogue]:
    """Read what is to be told and asked: a set by its name and path, or a file by its form.

    Raises:
        InvalidFile: naming the field and what was expected.
    """
    if what in _READERS:
        if path is None:
            raise InvalidFile(f"{what}: expected the path of its data after it", param="path")
        return _READERS[what](path)
    file = Path(what)
    if file.is_file() and file.read_bytes().lstrip().startswith(b"["):
        return read_locomo(file)
    return read_labelled(file)


def _table(reports: list[RecallReport]) -> Table:
    table = Table(
        "", "recall@5", "recall@10", "95%", "recall@20", "stored", "asked kept", "others dropped",
        "memories", "tokens", "on filler", "search p50",
    )  # fmt: skip
    for report in reports:
        low, high = report.recall_at_10_interval
        table.add_row(
            report.name,
            f"{report.recall_at_5:.3f}",
            f"{report.recall_at_10:.3f}",
            f"{low:.3f}-{high:.3f}",
            f"{report.recall_at_20:.3f}",
            f"{report.stored_fraction:.0%}",
            f"{report.asked_kept:.1%}",
            f"{report.others_dropped:.1%}",
            f"{report.memories:.1f}",
            f"{report.context_tokens:.0f}",
            "" if report.filler_memories is None else f"{report.filler_memories:.2f}",
            f"{report.search_ms_p50:.1f} ms",
        )
    return table


def _show_labels(held: LabelReport) -> None:
    console = Console()
    layers = Table("layer", "precision@3", "found", "brought unasked", "drafts")
    for name in ("episodes", "topics", "documents"):
        each: LabelScore = getattr(held, name)
        layers.add_row(
            name, f"{each.precision:.2f}", f"{each.found:.2f}", f"{each.unasked:.2f}",
            f"{each.drafts}",
        )  # fmt: skip
    console.print(f"Background work by {held.made_by}.")
    console.print(layers)
    console.print(
        f"Profile: {held.profile_precision:.2f} of the entries are right, "
        f"{held.profile_recall:.2f} of what should be there is."
    )
    console.print(
        f"Open questions: {held.questions:.2f} are open or settled as they should be; "
        f"{held.other_questions} others."
    )


def _show(life: LongitudinalReport) -> None:
    console = Console()
    layers = Table("layer", "tokens", "ms", "evidence without it", "with it alone")
    for layer in life.layers:
        layers.add_row(
            layer.layer,
            f"{layer.tokens:.0f}",
            f"{layer.ms:.2f}",
            f"{layer.without:.3f}",
            f"{layer.alone:.3f}",
        )
    weeks = Table("week", "tokens a prompt", "most", "ms", "layers alive")
    for week in life.weeks:
        weeks.add_row(
            f"{week.week}",
            f"{week.tokens:.0f}",
            f"{week.most_tokens}",
            f"{week.ms:.1f}",
            f"{len(week.alive)}",
        )
    console.print(
        f"{life.questions} questions, evidence present with all layers: {life.evidence:.3f}"
    )
    console.print(
        f"{life.tokens:.0f} tokens a question, {life.repeated:.0f} spared by repeating nothing; "
        f"{life.memories:.1f} memories"
    )
    console.print(layers)
    console.print(weeks)
    console.print("Background work per message: ", life.asked)


async def _compare(settings: Settings, labelled: LabelledRelationship) -> LabelReport:
    clock = ManualClock()
    total = sum(len(session.said) for session in labelled.sessions) + len(labelled.asked)
    async with _alone(settings, "Living and asking", total, clock) as (built, advance):
        return await measure_labels(built, clock, labelled, advance)


async def _live(settings: Settings, dialogues: list[Dialogue], days: int) -> LongitudinalReport:
    clock = ManualClock()
    total = sum(len(dialogue.turns) + len(dialogue.questions) for dialogue in dialogues)
    async with _alone(settings, "Living and asking", total, clock) as (built, advance):
        return await measure_life(built, clock, dialogues, days, advance)


async def _measure(
    settings: Settings, dialogues: list[Dialogue], variants: list[Variant]
) -> list[RecallReport]:
    total = steps(dialogues, variants)
    async with _alone(settings, "Telling and asking", total) as (built, advance):
        return await measure(built, dialogues, variants, advance)


@asynccontextmanager
async def _alone(
    settings: Settings, what: str, total: int, clock: Clock | None = None
) -> AsyncIterator[tuple[Core, Callable[[int], None]]]:
    """Build what is measured on a database of its own, and show how far the measurement is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eval-", dir=settings.data_dir) as scratch:
        async with core(settings.in_scratch(Path(scratch)), clock=clock, say=say) as built:
            with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
                task = bar.add_task(what, total=total)
                yield built, lambda done: bar.advance(task, done)
