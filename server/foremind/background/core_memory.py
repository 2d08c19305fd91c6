"""The hot context: about 500 words on where a relationship stands, ready before anything else."""

from collections.abc import Sequence
from datetime import tzinfo
from functools import partial

from foremind.background.curation_context import CurationContext
from foremind.background.prompts import CoreMemoryAnswer, for_state
from foremind.domain.errors import Conflict, UnusableAnswer
from foremind.domain.record import NewRecord, Record, by_hand, of_layer, open_questions
from foremind.llm.prompt.record_format import day_in_words
from foremind.llm.prompt.sections import profile_order
from foremind.text.tokenization import terms_of

_WORDS = 500
_MOST_OF_PROFILE = 20
_MAX_TOKENS = 1000
_ATTEMPTS = 2
_TOLD = 0.6  # of a line's words: a text with as many tells what it says


async def curate_state(work: CurationContext) -> None:
    """Write the hot context anew; what somebody changed meanwhile is taken in, not over."""
    if not work.policy.on("hot"):
        return
    for attempt in range(_ATTEMPTS):
        material = material_of(work.records, work.now.tzinfo)
        present = work.of("hot")[-1:]
        if not material:
            return
        before = await _by_hand(work, present[0]) if present else ""
        text = await _told(work, before, material)
        # It is made of everything: whatever is forgotten, it is made anew.
        record = NewRecord(layer="hot", content=_cut(text), made_by=work.maker)
        try:
            async with work.changing() as changes:
                if present:
                    await changes.change(present[0].id, record, present[0].revision)
                else:
                    await changes.add(record)
        except Conflict as error:
            if error.param is None or attempt + 1 == _ATTEMPTS:
                raise
            await work.refresh()  # the next attempt sees both
        else:
            break
    await work.refresh()


async def _told(work: CurationContext, before: str, material: Sequence[str]) -> str:
    if work.server is None:
        work.by_rules("hot")
    else:
        asked = for_state(before, material, work.now, work.policy.prompts.hot)
        try:
            return with_written(
                before, (await work.ask("hot", asked, CoreMemoryAnswer, _MAX_TOKENS)).text
            )
        except UnusableAnswer as error:
            work.stand_in("hot", error)
    return by_rules(before, material)


async def _by_hand(work: CurationContext, present: Record) -> str:
    """Return what somebody last wrote into the hot context by hand."""
    if by_hand(present.made_by):
        return present.content
    earlier = await work.store.revisions(work.bond.id, present.id)
    written = [each.content for each in earlier if by_hand(each.made_by)]
    return written[-1] if written else ""


def material_of(records: Sequence[Record], zone: tzinfo | None) -> list[str]:
    """Return what the state is made of, the most telling first, each with its day in a zone."""

    def newest(found: Sequence[Record], count: int) -> list[Record]:
        return sorted(found, key=lambda each: each.updated_at, reverse=True)[:count]

    def line(label: str, record: Record) -> str:
        # What somebody wrote by hand holds until it is changed.
        day = day_in_words(record.updated_at.astimezone(zone))
        when = "" if by_hand(record.made_by) else f" ({day})"
        return f"{label}{when}: {record.content}"

    of = partial(of_layer, records)
    profile = sorted(of("profile"), key=profile_order)[:_MOST_OF_PROFILE]
    return [
        *(line(each.title, each) for each in profile),
        *(line(each.kind, each) for each in newest(of("scratchpad"), 12)),
        *(line("last time", each) for each in newest(of("opening"), 1)),
        *(line(each.title, each) for each in newest(of("topics"), 4)),
        *(line("left open", each) for each in newest(open_questions(records), 3)),
    ]


def with_written(written: str, text: str) -> str:
    """Return what a model made, after those lines somebody wrote that it does not tell."""
    told = set(terms_of(text))

    def is_told(line: str) -> bool:
        terms = set(terms_of(line))
        return len(terms & told) >= _TOLD * len(terms) if terms else line.strip() in text

    left = [line for line in written.splitlines() if line.strip() and not is_told(line)]
    return "\n".join([*left, text])


def by_rules(written: str, material: Sequence[str]) -> str:
    """Put the material together, after what somebody wrote by hand, without repeating it."""
    lines = [line for line in written.splitlines() if line.strip()]
    written = written.casefold()
    for each in material:
        text = each.partition(": ")[2] or each
        if text.casefold() not in written:
            lines.append(each.replace("\n", " "))
            written += text.casefold()
    return "\n".join(lines)


def _cut(text: str) -> str:
    """Keep whole lines, of about 500 words."""
    kept: list[str] = []
    words = 0
    for line in text.splitlines():
        words += len(line.split())
        if words > _WORDS and kept:
            break
        kept.append(" ".join(line.split()[:_WORDS]))
    return "\n".join(kept)
