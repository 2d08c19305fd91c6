"""`foremind eval`: measures recall on conversations with labelled evidence."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from foremind.app.configuration import load_settings
from foremind.app.core import Core, core
from foremind.app.server import serving
from foremind.cli.running import run, say
from foremind.domain.clock import Clock
from foremind.domain.errors import InvalidFile
from foremind.domain.settings.settings import Settings
from foremind_eval.chart import draw, recall_bar
from foremind_eval.cli.output import output_json
from foremind_eval.dialogues import Dialogue
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.keyword_baseline import BaselineReport, measure_baseline
from foremind_eval.labelled_file import read_labelled
from foremind_eval.language_recall import (
    LanguageReport,
    LanguageSet,
    count_language_steps,
    measure_languages,
    read_language_sets,
)
from foremind_eval.layer_labels import (
    LABELLED_YEAR,
    LabelledRelationship,
    LabelReport,
    LabelScore,
    measure_labels,
    read_labelled_relationship,
)
from foremind_eval.locomo import read_locomo
from foremind_eval.longitudinal import LongitudinalReport, measure_longitudinal
from foremind_eval.madial import read_madial
from foremind_eval.recall import RecallReport, count_steps, measure
from foremind_eval.reply_labels import ReplyReport, measure_replies, read_replies
from foremind_eval.statement_reading import (
    HALVES,
    Half,
    LabelledMessage,
    ReadingReport,
    measure_reading,
    misread,
    read_messages,
)
from foremind_eval.variants import Variant, ablation, configured_variant
from foremind_eval.world_stories import (
    Story,
    WorldReport,
    count_prompts,
    measure_worlds,
    read_stories,
)

_LAYERS = "layers"
_LANGUAGES = "languages"
_STATEMENTS = "statements"
_REPLIES = "replies"
_WORLDS = "worlds"
_READERS = {"locomo": read_locomo, "madial": read_madial}


def evaluate(
    what: str = typer.Argument(
        help="What to measure: locomo or madial (data set in PATH), a file in LoCoMo's format, a "
        "labelled conversation of your own, layers, languages, statements, replies, or worlds."
    ),
    path: Path | None = typer.Argument(
        None,
        help="LoCoMo's file or MADial-Bench's folder. For layers: a labelled relationship (TOML), "
        "by default the built-in one, or LoCoMo's file. For languages: a set of your own (TOML), "
        "by default the built-in ones. For statements: labelled messages (JSON lines). For worlds: "
        "stories of who witnessed what (JSON).",
    ),
    json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
    significance: bool = typer.Option(
        True, "--significance/--no-significance", help="Store only significant turns, or all."
    ),
    age_window: bool = typer.Option(
        False, "--age-window/--no-age-window", help="Recall only memories within the age limit."
    ),
    ablate: bool = typer.Option(
        False,
        "--ablate",
        help="Compare with simpler methods, enabling one improvement after another.",
    ),
    days: int = typer.Option(90, "--days", help="For layers: maximum number of simulated days."),
    plot: Path | None = typer.Option(None, "--plot", help="Write a chart (SVG) to this file."),
    language: list[str] | None = typer.Option(
        None, "--language", help="For languages: only this one, such as de; may be repeated."
    ),
    wrong: bool = typer.Option(
        False, "--wrong", help="For statements: also list what was read wrongly, and not read."
    ),
    half: Half | None = typer.Option(
        None, "--half", help="For statements: only the half that the rules may be tuned on, or not."
    ),
    out: Path | None = typer.Option(None, "--out", help="Also write the JSON to this file."),
) -> None:
    """Measure recall through the real store and search.

    The conversations are stored in a temporary database, which is removed afterwards. Beside it,
    rank-bm25 is asked the same, as the published method that needs no model.

    With layers and a labelled relationship, the records of the layers are compared with its labels.
    With layers and LoCoMo's file, one session a day is simulated, to measure what each layer costs
    and contributes.

    With languages, facts are told in each language, and asked about.

    With statements, the facts that the rules read in messages are compared with their labels.

    With replies, labelled replies of companions are told apart: those that tell anything new.

    With worlds, stories are played as worlds. What a mind has not witnessed must not be in its
    prompts, and what it has and is asked about must.
    """
    if what == _WORLDS:
        _evaluate_worlds(path, out, json=json)
        return
    if what == _REPLIES:
        replies = run(_measure_replies(load_settings()))
        if not output_json(replies, out, json=json):
            _print_replies(replies)
        return
    if what == _LAYERS:
        _evaluate_layers(path, days, out, json=json)
        return
    if what == _LANGUAGES:
        reports_by_language = run(
            _measure_languages(load_settings(), read_language_sets(path, language))
        )
        if not output_json(reports_by_language, out, json=json):
            _print_languages(reports_by_language)
        return
    if what == _STATEMENTS:
        _evaluate_statements(path, half, out, json=json, wrong=wrong)
        return
    dialogues = read_dialogues(what, path)
    variants = (
        ablation(age_window=age_window)
        if ablate
        else [configured_variant(significance=significance, age_window=age_window)]
    )
    baseline = measure_baseline(dialogues)
    reports = run(_measure_recall(load_settings(), dialogues, variants))
    if plot is not None:
        plot.write_text(
            draw(
                [recall_bar(report) for report in reports], f"{what}: recall@10, with 95% intervals"
            ),
            "utf-8",
        )
    result = (
        [*reports, baseline] if ablate else msgspec.to_builtins(reports[0]) | {"baseline": baseline}
    )
    if not output_json(result, out, json=json):
        Console().print(_table(reports, baseline))


def _evaluate_layers(path: Path | None, days: int, out: Path | None, *, json: bool) -> None:
    if path is None or path.suffix == ".toml":
        labels = run(
            _compare_with_labels(load_settings(), read_labelled_relationship(path or LABELLED_YEAR))
        )
        if not output_json(labels, out, json=json):
            _print_labels(labels)
    else:
        report = run(_simulate_days(load_settings(), read_dialogues("locomo", path), days))
        if not output_json(report, out, json=json):
            _print_longitudinal(report)


def _evaluate_statements(
    path: Path | None, half: Half | None, out: Path | None, *, json: bool, wrong: bool
) -> None:
    if path is None:
        raise InvalidFile("statements: expected the path of labelled messages after it")
    messages = [message for message in read_messages(path) if half in (None, message.half)]
    report = measure_reading(messages)
    if output_json(report, out, json=json):
        return
    if wrong:
        _print_misread(messages)
    _print_reading(report)


def _evaluate_worlds(path: Path | None, out: Path | None, *, json: bool) -> None:
    if path is None:
        raise InvalidFile("worlds: expected the path of stories after it")
    report = run(_measure_worlds(load_settings(), read_stories(path)))
    if not output_json(report, out, json=json):
        _print_worlds(report)


def _print_worlds(report: WorldReport) -> None:
    table = Table("", "counted", "of", "share")
    table.add_row("leak_rate", f"{report.leaking}", f"{report.prompts}", f"{report.leak_rate:.2%}")
    table.add_row("loss_rate", f"{report.missing}", f"{report.asked}", f"{report.loss_rate:.2%}")
    for order, score in report.by_order.items():
        table.add_row(
            f"  order {order}", f"{score.missing}", f"{score.asked}", f"{score.loss_rate:.2%}"
        )
    console = Console()
    console.print(
        f"{report.stories} stories, {report.events} events, at most {report.longest} in one; "
        f"{report.other_witnesses} events with other witnesses than in the file."
    )
    console.print(table)
    for example in report.examples:
        console.print(example, markup=False)


def _print_misread(messages: list[LabelledMessage]) -> None:
    for message in messages:
        wrongly, missed = misread(message)
        if wrongly or (missed and message.plain):
            say(f"{message.text}\n    wrong: {wrongly}, not read: {missed}")


def _print_reading(report: ReadingReport) -> None:
    table = Table("messages", "facts read", "wrong_of_read", "plain facts", "read_of_plain")
    for name, score in (("all", report), *((half, report.halves[half]) for half in HALVES)):
        if score.messages:
            table.add_row(
                f"{name} ({score.messages})", f"{score.read}", f"{score.wrong_of_read:.2%}",
                f"{score.plain}", f"{score.read_of_plain:.1%}",
            )  # fmt: skip
    Console().print(table)


def read_dialogues(what: str, path: Path | None) -> list[Dialogue]:
    """Read dialogues: a data set by name and path, or a file by its format.

    Raises:
        InvalidFile: names the field and what was expected.
    """
    if what in _READERS:
        if path is None:
            raise InvalidFile(f"{what}: expected the path of its data after it", param="path")
        return _READERS[what](path)
    file = Path(what)
    if file.is_file() and file.read_bytes().lstrip().startswith(b"["):
        return read_locomo(file)
    return read_labelled(file)


def _table(reports: list[RecallReport], baseline: BaselineReport) -> Table:
    table = Table(
        "", "recall@5", "recall@10", "95%", "recall@20", "stored", "evidence kept",
        "others dropped", "memories", "tokens", "on filler", "search p50",
    )  # fmt: skip
    for report in reports:
        table.add_row(
            *_recall_cells(report),
            f"{report.stored_fraction:.0%}",
            f"{report.asked_kept:.1%}",
            f"{report.others_dropped:.1%}",
            f"{report.memories:.1f}",
            f"{report.context_tokens:.0f}",
            "" if report.filler_memories is None else f"{report.filler_memories:.2f}",
            f"{report.search_ms_p50:.1f} ms",
        )
    table.add_row(*_recall_cells(baseline), *[""] * 6, f"{baseline.search_ms_p50:.1f} ms")
    return table


def _recall_cells(report: RecallReport | BaselineReport) -> list[str]:
    low, high = report.recall_at_10_interval
    return [
        report.name,
        f"{report.recall_at_5:.3f}",
        f"{report.recall_at_10:.3f}",
        f"{low:.3f}-{high:.3f}",
        f"{report.recall_at_20:.3f}",
    ]


def _print_languages(reports: list[LanguageReport]) -> None:
    console = Console()
    table = Table("language", "kept", "fillers kept", "found in 3", "found in 5", "in other words")
    for report in reports:
        table.add_row(
            report.language,
            f"{report.kept:.1%}",
            "" if report.fillers_kept is None else f"{report.fillers_kept:.0%}",
            f"{report.found_at_3:.1%}",
            f"{report.found_at_5:.1%}",
            "" if report.found_in_other_words is None else f"{report.found_in_other_words:.1%}",
        )
    console.print(table)
    for report in reports:
        for because, ids in report.missed_by_reason().items():
            console.print(f"Not found in {report.language}, {because}: {', '.join(ids)}.")


def _print_replies(report: ReplyReport) -> None:
    table = Table("replies kept", "that tell anything new", "others")
    table.add_row("labelled", f"{report.informative}", f"{report.others}")
    table.add_row("all", f"{report.all_informative_kept:.1%}", f"{report.all_others_kept:.1%}")
    table.add_row("informative", f"{report.informative_kept:.1%}", f"{report.others_kept:.1%}")
    console = Console()
    console.print(table)
    for reply in report.wrong:
        console.print(f"Judged otherwise than labelled: {reply}")


def _print_labels(report: LabelReport) -> None:
    console = Console()
    layers = Table("layer", "precision@3", "found", "unexpected", "drafts")
    for name in ("episodes", "topics", "documents"):
        score: LabelScore = getattr(report, name)
        layers.add_row(
            name, f"{score.precision:.2f}", f"{score.found:.2f}", f"{score.unasked:.2f}",
            f"{score.drafts}",
        )  # fmt: skip
    console.print(f"Background work by {report.made_by}.")
    console.print(layers)
    console.print(
        f"Profile: precision {report.profile_precision:.2f}, recall {report.profile_recall:.2f}."
    )
    console.print(
        f"Open questions: {report.questions:.2f} have the right status; "
        f"{report.other_questions} others."
    )


def _print_longitudinal(report: LongitudinalReport) -> None:
    console = Console()
    layers = Table(
        "layer", "tokens", "repeating", "ms", "evidence without it", "evidence with it alone"
    )
    for layer in report.layers:
        layers.add_row(
            layer.layer,
            f"{layer.tokens:.0f}",
            f"{layer.repeating:.0f}",
            f"{layer.ms:.2f}",
            f"{layer.without:.3f}",
            f"{layer.alone:.3f}",
        )
    weeks = Table("week", "tokens per prompt", "repeating", "maximum", "ms", "layers in use")
    for week in report.weeks:
        weeks.add_row(
            f"{week.week}",
            f"{week.tokens:.0f}",
            f"{week.repeating:.0f}",
            f"{week.max_tokens}",
            f"{week.ms:.1f}",
            f"{len(week.alive)}",
        )
    console.print(
        f"{report.questions} questions, evidence present with all layers: {report.evidence:.3f}"
    )
    console.print(
        f"{report.tokens:.0f} tokens per question, {report.memories:.1f} memories; without "
        f"deduplication {report.repeating:.0f} tokens, evidence {report.repeating_evidence:.3f}"
    )
    console.print(layers)
    console.print(weeks)
    console.print("Background work per message: ", report.asked)


async def _compare_with_labels(settings: Settings, labelled: LabelledRelationship) -> LabelReport:
    clock = ManualClock()
    total = sum(len(session.said) for session in labelled.sessions) + len(labelled.asked)
    async with _scratch_core(settings, "Replaying and querying", total, clock) as (built, advance):
        return await measure_labels(built, clock, labelled, advance)


async def _simulate_days(
    settings: Settings, dialogues: list[Dialogue], days: int
) -> LongitudinalReport:
    clock = ManualClock()
    total = sum(len(dialogue.turns) + len(dialogue.questions) for dialogue in dialogues)
    async with _scratch_core(settings, "Replaying and querying", total, clock) as (built, advance):
        return await measure_longitudinal(built, clock, dialogues, days, advance)


async def _measure_languages(settings: Settings, sets: list[LanguageSet]) -> list[LanguageReport]:
    total = count_language_steps(sets)
    async with _scratch_core(settings, "Telling and asking", total) as (built, advance):
        return await measure_languages(built, sets, advance)


async def _measure_replies(settings: Settings) -> ReplyReport:
    replies = read_replies()
    async with _scratch_core(settings, "Scoring", len(replies)) as (built, advance):
        report = await measure_replies(built, replies)
        advance(len(replies))
        return report


async def _measure_worlds(settings: Settings, stories: tuple[Story, ...]) -> WorldReport:
    with _scratch(settings) as scratch, _progress("Asking", count_prompts(stories)) as advance:
        changed = msgspec.structs.replace(
            scratch, port=0, auth_secret=None, auth_keys=None, public_url=None
        )
        async with serving(changed, say=say) as (app, port):
            return await measure_worlds(app, port, stories, advance)


async def _measure_recall(
    settings: Settings, dialogues: list[Dialogue], variants: list[Variant]
) -> list[RecallReport]:
    total = count_steps(dialogues, variants)
    async with _scratch_core(settings, "Storing and querying", total) as (built, advance):
        return await measure(built, dialogues, variants, advance)


@asynccontextmanager
async def _scratch_core(
    settings: Settings, description: str, total: int, clock: Clock | None = None
) -> AsyncIterator[tuple[Core, Callable[[int], None]]]:
    """Build a core on a temporary database, and show a progress bar of `total` steps."""
    with _scratch(settings) as scratch:
        async with core(scratch, clock=clock, say=say) as built:
            with _progress(description, total) as advance:
                yield built, advance


@contextmanager
def _scratch(settings: Settings) -> Iterator[Settings]:
    """Return settings by which everything is kept in a temporary folder."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eval-", dir=settings.data_dir) as scratch:
        yield settings.in_scratch(Path(scratch))


@contextmanager
def _progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of `total` steps; return what advances it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps_done: bar.advance(task, steps_done)
