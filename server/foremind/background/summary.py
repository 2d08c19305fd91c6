"""The rolling summary: the oldest turns of a long conversation, in three to five lines."""

from collections.abc import Mapping, Sequence

import structlog

from foremind.background.due_work import MILESTONES, UNTOUCHED, turns_to_summarise
from foremind.background.extractive_summary import Utterance, chars_of, top_sentences
from foremind.background.prompts import SummaryAnswer, summary_prompt
from foremind.background.step_context import StepContext
from foremind.background.step_definitions import Outcome
from foremind.domain.announcements import SummaryApplied
from foremind.domain.record import Details, NewRecord
from foremind.runtime.supervision import run_or_offload
from foremind.storage.background_store import MAX_TURNS
from foremind.storage.record_store import RecordChanges

_MAX_LINES = 5
_MAX_TOKENS = 400

_log = structlog.get_logger("foremind.background")


async def summarise(context: StepContext) -> Outcome:
    """Add a batch of unsummarised turns to the summary, if there are too many of them."""
    if not context.policy.on("summary"):
        return Outcome()
    turns = await context.said_after(context.relationship.summarised_turn_id, MAX_TURNS)
    if not turns:
        return Outcome()
    await context.load()
    previous = context.records_of("summary")[-1:]
    begun = previous[0].details.upto if previous else 0
    # A milestone matters only where there are more turns than a summary leaves.
    messages = (
        await context.background.count_turns(context.relationship.id, MILESTONES[-1] + len(turns))
        if len(turns) > UNTOUCHED
        else 0
    )
    batches = turns_to_summarise(turns, messages, context.policy, context.count_tokens, begun)
    if not batches:
        return Outcome()
    oldest = batches[0]
    lines = await _lines(
        context, previous[0].content if previous else "", context.utterances(oldest)
    )
    summary = NewRecord(
        layer="summary",
        content="\n".join(line.replace("\n", " ") for line in lines),
        made_by=context.made_by,
        details=Details(
            messages=len(oldest) + sum(record.details.messages for record in previous),
            upto=batches[-1][-1].id,
        ),
        turns=tuple(turn.id for turn in oldest),
    )
    applied = SummaryApplied(len(oldest), len(lines), context.made_by)

    async def write(changes: RecordChanges) -> None:
        if previous:
            await changes.change(previous[0].id, summary, previous[0].revision)
        else:
            await changes.add(summary)
        changes.advance("summarised", oldest[-1].id, context.relationship.summarised_turn_id)
        changes.summarised(applied)

    context.plan(write)
    context.summarised_turn_id = oldest[-1].id
    _log.info(
        "summary.applied",
        relationship_id=context.relationship.id,
        messages=applied.messages,
        lines=applied.lines,
        made_by=applied.made_by,
    )
    return Outcome(more=True)


async def _lines(
    context: StepContext, previous: str, utterances: Sequence[Utterance]
) -> Sequence[str]:
    """Return the lines of a new summary, from the previous one and later utterances."""
    size = chars_of(utterances)
    answer = await context.ask(
        "summary",
        lambda: summary_prompt(previous, utterances, context.policy.prompts.summary),
        [previous, *(utterance.text for utterance in utterances)],
        SummaryAnswer,
        _MAX_TOKENS,
    )
    if answer is not None:
        lines = await run_or_offload(size, lambda: answer.gate.lines(answer.value.lines, previous))
        if lines:
            return lines
        context.refuse("summary")
    return await run_or_offload(size, lambda: summary_by_rules(previous.splitlines(), utterances))


def summary_by_rules(previous: Sequence[str], utterances: Sequence[Utterance]) -> list[str]:
    """Return the highest-scoring sentences of the previous summary and later utterances."""
    speakers = {utterance.name: utterance.by_user for utterance in utterances}
    summarised = [_as_utterance(line, speakers) for line in previous if line.strip()]
    chosen = top_sentences([*summarised, *utterances], _MAX_LINES)
    lines = [f"{sentence.utterance.name}: {sentence.text}" for sentence in chosen]
    return lines or [f"{utterance.name}: {utterance.text[:200]}" for utterance in utterances[:1]]


def _as_utterance(line: str, speakers: Mapping[str, bool]) -> Utterance:
    """Return a summary line as an utterance, significant enough that it is likely to stay."""
    name, colon, text = line.partition(": ")
    if not colon or name not in speakers:
        return Utterance(0, "", True, line, 0.5)
    return Utterance(0, name, speakers[name], text, 0.5)
