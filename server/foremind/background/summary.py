"""The rolling summary: the oldest turns of a long talk, in three to five lines."""

from collections.abc import Sequence

import structlog

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import Utterance, chars_of, top_sentences
from foremind.background.prompts import SummaryAnswer, for_summary
from foremind.background.schedule import to_summarise
from foremind.domain.announcements import SummaryApplied
from foremind.domain.errors import UnusableAnswer
from foremind.domain.record import Details, NewRecord
from foremind.domain.relationship import TranscriptTurn
from foremind.runtime.offload import aside

_LINES = 5
_MAX_TOKENS = 400

_log = structlog.get_logger("foremind.background")


async def summarise(work: CurationContext, turns: Sequence[TranscriptTurn]) -> bool:
    """Take a portion of the turns that no summary holds into the summary, if there are too many.

    Tell whether there were.
    """
    before = work.of("summary")[-1:]
    begun = before[0].details.upto if before else 0
    portions = to_summarise(turns, work.bond.messages, work.policy, work.count, begun)
    if not portions:
        return False
    oldest = portions[0]
    lines = await _lines(work, before[0].content if before else "", work.utterances(oldest))
    summary = NewRecord(
        layer="summary",
        content="\n".join(line.replace("\n", " ") for line in lines),
        made_by=work.maker,
        details=Details(
            messages=len(oldest) + sum(each.details.messages for each in before),
            upto=portions[-1][-1].id,
        ),
        turns=tuple(turn.id for turn in oldest),
    )
    applied = SummaryApplied(len(oldest), len(lines), work.maker)
    async with work.changing() as changes:
        if before:
            await changes.change(before[0].id, summary, before[0].revision)
        else:
            await changes.add(summary)
        await changes.advance("summarised", oldest[-1].id, work.bond.summarised_turn_id)
        changes.summarised(applied)
    _log.info(
        "summary.applied",
        relationship_id=work.bond.id,
        messages=applied.messages,
        lines=applied.lines,
        made_by=applied.made_by,
    )
    await work.refresh()
    return True


async def _lines(work: CurationContext, former: str, said: Sequence[Utterance]) -> Sequence[str]:
    """Return the lines of a summary that tells of a former one and of what was said since."""
    if work.server is None:
        work.by_rules("summary")
    else:
        asked = for_summary(former, said, work.policy.prompts.summary)
        try:
            return (await work.ask("summary", asked, SummaryAnswer, _MAX_TOKENS)).lines
        except UnusableAnswer as error:
            work.stand_in("summary", error)
    return await aside(chars_of(said), lambda: by_rules(former.splitlines(), said))


def by_rules(before: Sequence[str], said: Sequence[Utterance]) -> list[str]:
    """Return the weightiest sentences of the former summary and of what was said since."""
    names = sorted({each.name for each in said}, key=len, reverse=True)
    former = [_utterance(line, names) for line in before if line.strip()]
    chosen = top_sentences([*former, *said], _LINES)
    lines = [f"{each.utterance.name}: {each.text}" for each in chosen]
    return lines or [f"{each.name}: {each.text[:200]}" for each in said[:1]]


def _utterance(line: str, names: Sequence[str]) -> Utterance:
    """Read a line of a summary as what was said; what stayed once is likely to stay."""
    name = next((each for each in names if line.startswith(f"{each}: ")), "")
    text = line.removeprefix(f"{name}: ")
    return Utterance(0, name, bool(name), text, 0.5)
