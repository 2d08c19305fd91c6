"""Who gets how much of the context, and which copy of a sentence stays. Pure.

The layers share a fixed part of the model's context. What somebody wrote by hand comes first. Then
each takes what it needs of its own share; what is left over goes round by priority, so that what
matters most is cut last. A sentence that stands somewhere already is left out.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from msgspec.structs import replace

from foremind.domain.settings import LayerName
from foremind.llm.prompt.quoted_lines import QuotedLine, shortened, without
from foremind.llm.prompt.sections import Section
from foremind.llm.prompt.token_counter import CountTokens

# In order of priority, with each layer's share of what all layers may take.
SHARES: dict[LayerName, float] = {
    "behaviours": 0.05,
    "state": 0.03,
    "profile": 0.12,
    "hot": 0.17,
    "scratchpad": 0.10,
    "opening": 0.04,
    "summary": 0.06,
    "topics": 0.08,
    "memories": 0.18,
    "episodes": 0.05,
    "questions": 0.02,
    "vault": 0.03,
    "library": 0.07,
}
_BY_OTHERS = ("behaviours", "state")  # what a developer or a game wrote, whole like what is by hand
_PRIORITY = {layer: number for number, layer in enumerate(SHARES)}
_BLOCK = 16  # tokens of a section's tags


@dataclass(frozen=True, slots=True)
class StatedSentence:
    """A line as it is shown, and what it takes; `news` are the sentences that only it holds."""

    text: str
    tokens: int
    shape: QuotedLine | None
    news: Set[int]


@dataclass(slots=True)
class BudgetShare:
    """What a prompt shows of a section: lines by their number.

    `elsewhere` are sentences that stand elsewhere in the prompt, as far as this section goes;
    `repeated` the lines of which nothing is left without them, `spared` the tokens saved so.
    """

    section: Section
    elsewhere: Set[int] = frozenset()
    told: dict[int, StatedSentence] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    spared: int = 0
    cut: int | None = None
    tokens: int = 0
    whole: bool = False  # all of it is shown as it is

    def lines(self) -> list[str]:
        """Return what it tells in the section's own words, here or where else it stands."""
        lines = [
            self.told[number].text if number == self.cut else self.section.lines[number]
            for number in self.numbers()
        ]
        return self._begun(lines)

    def numbers(self) -> list[int]:
        """Return which lines it tells, in the section's own words or where else they stand."""
        if self.whole:
            return list(range(len(self.section.lines)))
        return sorted(self.repeated | set(self.told))

    def shown(self) -> Section:
        """Return the section as it is shown."""
        if self.whole and not self.section.preface:
            return self.section
        if self.whole:
            return replace(self.section, lines=tuple(self._begun(list(self.section.lines))))
        order = sorted(self.told)
        lines = self._begun([self.told[each].text for each in order])
        return Section(
            self.section.layer,
            tuple(lines),
            tuple(self.told[each].tokens for each in order),
            self.section.made_by,
            tuple(self.told[each].shape for each in order),
            records=tuple(self.section.records[each] for each in order if self.section.records),
        )

    def _begun(self, lines: list[str]) -> list[str]:
        """Return lines with what is said before the first."""
        if lines and self.section.preface:
            lines[0] = f"{self.section.preface}\n{lines[0]}"
        return lines


def share_out(
    portions: Sequence[BudgetShare], tokens: int, said: Set[int], count: CountTokens
) -> int:
    """Fill portions, from their first lines on; return the tokens taken.

    Args:
        portions: of two that hold a sentence the first one shows it.
        tokens: what all of them may take together.
        said: the sentences that the talk holds, which no layer repeats.
    """
    sharing = _BudgetSplit(tokens, set(said), count)
    if sum(sharing.cost(portion) for portion in portions) <= tokens:  # then nobody has to give way
        for portion in portions:
            sharing.fill(portion, sharing.left)
        return tokens - sharing.left
    by_priority = sorted(portions, key=lambda each: _PRIORITY[each.section.layer])
    for each in by_priority:
        sharing.fill(each, sharing.left, by_hand=True)
    taken: dict[LayerName, int] = {}
    for portion in portions:
        layer = portion.section.layer
        sharing.fill(portion, int(tokens * SHARES[layer]) - taken.get(layer, portion.tokens))
        taken[layer] = taken.get(layer, 0) + portion.tokens
    for each in by_priority:
        sharing.fill(each, sharing.left)
    return tokens - sharing.left


class _BudgetSplit:
    """Tokens that are left, and sentences that stand somewhere."""

    def __init__(self, tokens: int, stand: set[int], count: CountTokens) -> None:
        self.left = tokens
        self._stand = stand
        self._count = count

    def cost(self, portion: BudgetShare) -> int:
        """Return the tokens that all of a section takes."""
        return portion.section.whole + _BLOCK + self._count(portion.section.preface)

    def fill(self, portion: BudgetShare, most: int, *, by_hand: bool = False) -> None:
        """Show more lines of a portion in at most so many more tokens; the last may be cut."""
        if portion.whole or (by_hand and not portion.section.by_hand):
            return
        if not portion.told and self._fits_whole(portion, most):
            return
        most += self._put_back_cut(portion)
        most = min(most, self.left)
        if most <= 0:
            return
        for index, shape in enumerate(portion.section.shapes):
            written = shape.by_hand if shape is not None else portion.section.layer in _BY_OTHERS
            if by_hand and not written:
                continue
            if index in portion.told or index in portion.repeated:
                continue
            before = self.left
            if not self._tell(portion, index, most):
                break
            most -= before - self.left

    def _fits_whole(self, portion: BudgetShare, most: int) -> bool:
        """Show all of a section, if it has room and nothing of it stands elsewhere: mostly so."""
        section = portion.section
        says, cost = section.says, self.cost(portion)
        if says is None or cost > min(most, self.left):
            return False
        if not says.isdisjoint(self._stand) or not says.isdisjoint(portion.elsewhere):
            return False
        portion.whole, portion.tokens = True, cost
        self._stand |= says
        self.left -= cost
        return True

    def _tell(self, portion: BudgetShare, index: int, most: int) -> bool:
        """Show a line, without what stands elsewhere; False where it had no room as it is."""
        section = portion.section
        text, cost, shape = section.lines[index], section.tokens[index], section.shapes[index]
        if shape is not None:
            rest = self._rest(portion, shape)
            if rest is None:
                portion.repeated.add(index)
                portion.spared += cost
                return True
            if rest is not shape:
                text = rest.text()
                shape, cost = rest, self._count(text)
        block = 0 if portion.told else _BLOCK + self._count(section.preface)
        if cost + block <= most:
            self._show(portion, index, text, cost + block, shape)
            portion.spared += section.tokens[index] - cost
            return True
        begun = None if shape is None else shortened(shape, most - block, self._count)
        if begun is not None:
            text = begun.text()
            self._show(portion, index, text, self._count(text) + block, begun)
            portion.cut = index
        return False

    def _rest(self, portion: BudgetShare, shape: QuotedLine) -> QuotedLine | None:
        if shape.keys.isdisjoint(self._stand) and shape.keys.isdisjoint(portion.elsewhere):
            return shape
        rest = without(shape, self._stand)
        return None if rest is None else without(rest, portion.elsewhere)

    def _show(
        self, portion: BudgetShare, index: int, text: str, tokens: int, shape: QuotedLine | None
    ) -> None:
        news = frozenset() if shape is None else shape.keys - self._stand
        portion.told[index] = StatedSentence(text, tokens, shape, news)
        portion.tokens += tokens
        self._stand |= news
        self.left -= tokens

    def _put_back_cut(self, portion: BudgetShare) -> int:
        """Take a line back that was cut, for there may be room for more of it now."""
        if portion.cut is None:
            return 0
        told = portion.told.pop(portion.cut)
        portion.cut = None
        portion.tokens -= told.tokens
        self._stand -= told.news
        self.left += told.tokens
        return told.tokens
