"""The core memory: about 500 words on the state of a relationship (wire layer `hot`)."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import partial

from foremind.background.prompts import MAX_CORE_WORDS, CoreMemoryAnswer, core_memory_prompt
from foremind.background.step_context import StepContext
from foremind.background.step_definitions import Outcome
from foremind.domain.errors import Conflict
from foremind.domain.record import NewRecord, Record, is_manual, of_layer
from foremind.llm.prompt.sections import note_order, profile_order
from foremind.storage.record_store import RecordChanges
from foremind.text.languages.language_files import LANGUAGES
from foremind.text.languages.prompt_words import day_in, heading_in, label_in
from foremind.text.tokenization import terms_of

_MAX_PROFILE_ENTRIES = 20
_MAX_NOTE_WORDS = 300  # by rules, so that topics have room, too
_MAX_TOKENS = 1000
# Begins the line of a topic on what was left open, in the language it was written in.
_LEFT_OPEN = tuple(f"{heading_in(language, 'left open')}: " for language in LANGUAGES)
# What a line may end with that stays apart from the next one without a line break.
_LINE_ENDS = tuple(".!?…:;|؟۔。！？：")
_MIN_OVERLAP = 0.6  # share of a line's words that a text must contain to cover the line


async def update_core_memory(context: StepContext) -> Outcome:
    """Rewrite the core memory; concurrent manual edits are merged in, never overwritten."""
    await context.load()
    if context.policy.on("hot"):
        try:
            await _rewrite(context)
        except Conflict as error:
            if error.param is None:
                raise
            await context.reload()  # it sees both versions
            await _rewrite(context)
    for change_set in context.relationship.change_sets_for("hot"):
        context.plan(partial(RecordChanges.remove_change_set, change_set=change_set))
    return Outcome(produced=True)


async def _rewrite(context: StepContext) -> None:
    with_model = context.server is not None
    sources = core_memory_sources(
        context.records,
        context.now.tzinfo,
        await context.language(),
        max(_MAX_NOTE_WORDS, context.policy.context_tokens // 4 if with_model else 0),
    )
    if not sources:
        return
    present = context.records_of("hot")[-1:]
    manual_text = await _last_manual_text(context, present[0]) if present else ""
    text = await _write_text(context, manual_text, sources)
    # No sources are noted: it depends on everything, and every erasure has it rewritten.
    record = NewRecord(layer="hot", content=_truncate(text), made_by=context.made_by)
    context.plan(partial(_write, present=present, record=record))
    await context.write_now()


async def _write(changes: RecordChanges, present: Sequence[Record], record: NewRecord) -> None:
    if present:
        await changes.change(present[0].id, record, present[0].revision)
    else:
        await changes.add(record)


async def _write_text(context: StepContext, manual_text: str, sources: Sequence[str]) -> str:
    own = context.policy.prompts.hot
    answer = await context.ask(
        "hot",
        lambda: core_memory_prompt(manual_text, sources, context.now, own),
        [manual_text, *sources],
        CoreMemoryAnswer,
        _MAX_TOKENS,
    )
    if answer is not None:
        lines = answer.gate.lines(answer.value.text.splitlines(), "\n".join(sources))
        if lines:
            return with_manual_lines(manual_text, "\n".join(lines))
        context.refuse("hot")
    return core_memory_by_rules(manual_text, sources)


async def _last_manual_text(context: StepContext, present: Record) -> str:
    """Return the last text of the core memory that was edited manually."""
    if is_manual(present.made_by):
        return present.content
    revisions = await context.store.revisions(context.relationship.id, present.id)
    manual = [revision.content for revision in revisions if is_manual(revision.made_by)]
    return manual[-1] if manual else ""


def core_memory_sources(
    records: Sequence[Record],
    zone: tzinfo | None,
    language: str,
    max_note_words: int = _MAX_NOTE_WORDS,
) -> list[str]:
    """Return the lines that the core memory is made of, the most important first.

    How the last session ended and what was left open are not among them: they have layers of their
    own, which show them when they matter.

    Args:
        zone: time zone of their dates.
        language: of their labels and dates.
        max_note_words: of the lines that are made of notes.
    """

    def newest(candidates: Sequence[Record], count: int) -> list[Record]:
        return sorted(candidates, key=lambda record: record.updated_at, reverse=True)[:count]

    def line(label: str, record: Record) -> str:
        # Manual edits hold until they are changed, so they have no date.
        day = day_in(language, record.said_at.astimezone(zone))
        when = "" if is_manual(record.made_by) else f" ({day})"
        content = record.content
        if record.layer == "topics" and not is_manual(record.made_by):
            content = "\n".join(
                text for text in content.splitlines() if not text.startswith(_LEFT_OPEN)
            )
        before = f"{label_in(language, label)}{when}".strip()
        return f"{before}: {content}" if before else content

    of = partial(of_layer, records)
    profile = sorted(of("profile"), key=profile_order)[:_MAX_PROFILE_ENTRIES]
    return [
        *(line(entry.title, entry) for entry in profile),
        *_first_within(
            max_note_words,
            (line(note.kind, note) for note in sorted(of("scratchpad"), key=note_order)),
        ),
        *(line(topic.title, topic) for topic in newest(of("topics"), 4)),
    ]


def _first_within(max_words: int, lines: Iterable[str]) -> Iterator[str]:
    """Yield the first lines that have at most so many words in all."""
    for line in lines:
        max_words -= len(line.split())
        if max_words < 0:
            return
        yield line


def with_manual_lines(manual_text: str, text: str) -> str:
    """Return a model's text, preceded by the manually written lines that it does not cover."""
    text_terms = set(terms_of(text))

    def is_covered(line: str) -> bool:
        terms = set(terms_of(line))
        if not terms:
            return line.strip() in text
        return len(terms & text_terms) >= _MIN_OVERLAP * len(terms)

    missing = [line for line in manual_text.splitlines() if line.strip() and not is_covered(line)]
    return "\n".join([*missing, text])


def core_memory_by_rules(manual_text: str, sources: Sequence[str]) -> str:
    """Return the manually written lines, then those sources that do not repeat them."""
    lines = [line for line in manual_text.splitlines() if line.strip()]
    seen = manual_text.casefold()
    for source in sources:
        text = source.partition(": ")[2] or source
        if text.casefold() not in seen:
            *before, last = source.splitlines()
            ended = [line if line.endswith(_LINE_ENDS) else f"{line};" for line in before]
            lines.append(" ".join([*ended, last]))
            seen += text.casefold()
    return "\n".join(lines)


def _truncate(text: str) -> str:
    """Keep whole lines, about `MAX_CORE_WORDS` in total."""
    first, *others = text.splitlines() or [""]
    words = first.split()[:MAX_CORE_WORDS]
    return "\n".join([" ".join(words), *_first_within(MAX_CORE_WORDS - len(words), others)])
