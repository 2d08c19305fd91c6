"""Divides a token budget between the layers of a prompt, and removes repeated sentences. Pure.

The layers share a fixed part of the model's context. Manual lines come first. Then each layer takes
what it needs of its own share; unused tokens are redistributed by priority, so that the most
important layers are truncated last. A sentence that is in the prompt already is omitted, and so is
what a user said of themselves if the profile or a note says no less, and of the same day.
"""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field

from msgspec.structs import replace

from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.prompt.quoted_lines import QuotedLine, shortened, without
from foremind.llm.prompt.sections import Section
from foremind.llm.prompt.token_counter import CountTokens

# In order of priority, with each layer's share of the budget of all layers.
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
_MANUAL_LAYERS = ("behaviours", "state")  # written by a developer or a game, like manual lines
_PRIORITY = {layer: number for number, layer in enumerate(SHARES)}
_TAG_TOKENS = 16  # of a section's tags


@dataclass(frozen=True, slots=True)
class _ShownLine:
    """A line as it is shown.

    `new_keys` are the sentences that it is the first to contain, `new_manual_keys` those that it is
    the first manual line to contain.
    """

    text: str
    tokens: int
    shape: QuotedLine | None
    new_keys: Set[int]
    new_manual_keys: Set[int]


@dataclass(slots=True)
class BudgetShare:
    """What a prompt shows of a section: lines by number.

    `elsewhere` are sentences that this section may not repeat; `standing` is what every prompt
    shows of its layer, whose records it may not repeat either. `repeated` are the lines of which
    nothing is left without what is repeated. `truncated_line` is the number of the truncated one of
    `shown_lines`, if any; `whole` says that the section is shown unchanged.
    """

    section: Section
    elsewhere: Set[int] = frozenset()
    standing: "BudgetShare | None" = None
    shown_lines: dict[int, _ShownLine] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    truncated_line: int | None = None
    tokens: int = 0
    whole: bool = False

    def lines(self) -> list[str]:
        """Return the lines whose content is in the prompt, here or in another section."""
        lines = [
            self.shown_lines[number].text
            if number == self.truncated_line
            else self.section.lines[number]
            for number in self.numbers()
        ]
        return self._with_preface(lines)

    def numbers(self) -> list[int]:
        """Return the numbers of the lines whose content is in the prompt, here or elsewhere."""
        if self.whole:
            return list(range(len(self.section.lines)))
        return sorted(self.repeated | set(self.shown_lines))

    def repeats_standing(self, number: int) -> bool:
        """Return whether every prompt shows the record of a line."""
        if self.standing is None or not self.section.records:
            return False
        records = self.standing.section.records
        return self.section.records[number] in [records[n] for n in self.standing.numbers()]

    def shown(self) -> Section:
        """Return the section as it is shown."""
        if self.whole and not self.section.preface:
            return self.section
        if self.whole:
            return replace(self.section, lines=tuple(self._with_preface(list(self.section.lines))))
        numbers = sorted(self.shown_lines)
        lines = self._with_preface([self.shown_lines[number].text for number in numbers])
        return Section(
            self.section.layer,
            tuple(lines),
            tuple(self.shown_lines[number].tokens for number in numbers),
            self.section.made_by,
            tuple(self.shown_lines[number].shape for number in numbers),
            records=tuple(
                self.section.records[number] for number in numbers if self.section.records
            ),
        )

    def _with_preface(self, lines: list[str]) -> list[str]:
        if lines and self.section.preface:
            lines[0] = f"{self.section.preface}\n{lines[0]}"
        return lines


def allocate_tokens(
    standing: Sequence[BudgetShare],
    recalled: Sequence[BudgetShare],
    tokens: int,
    said: Set[int],
    count: CountTokens,
) -> int:
    """Fill the shares, each from its first line on; return the tokens used.

    Of two sections with the same sentence, the first one shows it. Standing notes have no more than
    their layer's share, unless everything fits: the others are recalled. Manual lines come before
    the other lines of their kind of section, and are left out only if other manual lines say all of
    it.

    Args:
        standing: sections that do not depend on the draft, nor on what is recalled for it.
        recalled: those that do.
        tokens: the budget of all shares together.
        said: the sentences of the history, which only manual lines may repeat.
    """
    split = _BudgetSplit(tokens, set(said), count)
    shares = [*standing, *recalled]
    if sum(split.cost(share) for share in shares) <= tokens:  # everything fits
        for part in (standing, recalled):
            for share in part:
                split.fill(share, split.left, manual_only=True)
            for share in part:
                split.fill(share, split.left)
        return tokens - split.left
    by_priority = sorted(shares, key=lambda share: _PRIORITY[share.section.layer])
    for share in by_priority:
        split.fill(share, split.left, manual_only=True)
    used: dict[LayerName, int] = {}
    for share in shares:
        layer = share.section.layer
        split.fill(share, int(tokens * SHARES[layer]) - used.get(layer, share.tokens))
        used[layer] = used.get(layer, 0) + share.tokens
    for share in by_priority:
        if not any(share is notes for notes in standing if notes.section.layer == "scratchpad"):
            split.fill(share, split.left)
    return tokens - split.left


class _BudgetSplit:
    """The tokens that are left, and the sentences that are already in the prompt."""

    def __init__(self, tokens: int, known: set[int], count: CountTokens) -> None:
        self.left = tokens
        self._known = known
        self._count = count
        self._manual_keys: set[int] = set()  # of the known ones, those in manual lines
        self._stated: dict[int, str] = {}  # in other words: sentence keys, as `QuotedLine.states`

    def cost(self, share: BudgetShare) -> int:
        """Return the tokens of a complete section."""
        return share.section.whole + _TAG_TOKENS + self._count(share.section.preface)

    def fill(self, share: BudgetShare, max_tokens: int, *, manual_only: bool = False) -> None:
        """Show more lines of a section, within `max_tokens` more; the last may be truncated."""
        if share.whole or (manual_only and not share.section.is_manual):
            return
        section = share.section
        whole = not manual_only or all(_is_manual(section, shape) for shape in section.shapes)
        if whole and not share.shown_lines and self._fits_whole(share, max_tokens):
            return
        max_tokens += self._undo_truncation(share)
        max_tokens = min(max_tokens, self.left)
        if max_tokens <= 0:
            return
        for index, shape in enumerate(section.shapes):
            if manual_only and not _is_manual(section, shape):
                continue
            if index in share.shown_lines or index in share.repeated:
                continue
            before = self.left
            if not self._add_line(share, index, max_tokens):
                break
            max_tokens -= before - self.left

    def _fits_whole(self, share: BudgetShare, max_tokens: int) -> bool:
        """Show a section unchanged, if it fits and repeats nothing, which is the usual case."""
        section = share.section
        says, cost = section.says, self.cost(share)
        if says is None or cost > min(max_tokens, self.left):
            return False
        if any(map(share.repeats_standing, range(len(section.lines)))):
            return False
        if not says.isdisjoint(self._known) or not says.isdisjoint(share.elsewhere):
            return False
        if self._stated and (section.states or not self._stated.keys().isdisjoint(says)):
            return False
        share.whole, share.tokens = True, cost
        self._known |= says
        self.left -= cost
        if section.is_manual or section.states:
            for shape in section.shapes:
                self._note(shape)
        return True

    def _note(self, shape: QuotedLine | None) -> None:
        """Note what a line that is shown means for later ones, besides its sentences."""
        if shape is None:
            return
        if shape.is_manual:
            self._manual_keys |= shape.keys
        if shape.states:
            self._stated.update(shape.states)

    def _add_line(self, share: BudgetShare, index: int, max_tokens: int) -> bool:
        """Show a line without repeated sentences; return False if it did not fit completely."""
        section = share.section
        text, cost, shape = section.lines[index], section.tokens[index], section.shapes[index]
        if share.repeats_standing(index):
            share.repeated.add(index)
            return True
        if shape is not None:
            remainder = self._without_repeated(share, shape)
            if remainder is None:
                share.repeated.add(index)
                return True
            if remainder is not shape:
                text = remainder.text()
                shape, cost = remainder, self._count(text)
        tag_tokens = 0 if share.shown_lines else _TAG_TOKENS + self._count(section.preface)
        if cost + tag_tokens <= max_tokens:
            self._show(share, index, text, cost + tag_tokens, shape)
            return True
        truncated = (
            None if shape is None else shortened(shape, max_tokens - tag_tokens, self._count)
        )
        if truncated is not None and not self._in_manual_lines(truncated):
            text = truncated.text()
            self._show(share, index, text, self._count(text) + tag_tokens, truncated)
            share.truncated_line = index
        return False

    def _without_repeated(self, share: BudgetShare, shape: QuotedLine) -> QuotedLine | None:
        """Return what of a line is not in the prompt yet; None if nothing is left."""
        if shape.is_manual:
            return None if self._in_manual_lines(shape) else shape
        remainder: QuotedLine | None = shape
        if shape.day is not None and self._stated:
            if shape.states and len(shape.keys) == 1 and self._stated_on(shape.day, shape.states):
                return None
            remainder = without(shape, self._stated_on(shape.day, shape.keys))
        for known in (self._known, share.elsewhere):
            if remainder is not None and not remainder.keys.isdisjoint(known):
                remainder = without(remainder, known)
        return remainder

    def _in_manual_lines(self, shape: QuotedLine) -> bool:
        """Return whether a line is manual, and other manual lines say all of it."""
        return shape.is_manual and bool(shape.keys) and shape.keys <= self._manual_keys

    def _stated_on(self, day: str, keys: Collection[int]) -> Set[int]:
        """Return those of a line's sentences that another states, of the same day if it has one."""
        stated = self._stated
        if stated.keys().isdisjoint(keys):
            return frozenset()
        days = ("", day)
        return {key for key in keys if key in stated and (not day or stated[key] in days)}

    def _show(
        self, share: BudgetShare, index: int, text: str, tokens: int, shape: QuotedLine | None
    ) -> None:
        new_keys = frozenset() if shape is None else shape.keys - self._known
        new_manual_keys = (
            shape.keys - self._manual_keys if shape is not None and shape.is_manual else frozenset()
        )
        share.shown_lines[index] = _ShownLine(text, tokens, shape, new_keys, new_manual_keys)
        share.tokens += tokens
        self._known |= new_keys
        self.left -= tokens
        self._note(shape)

    def _undo_truncation(self, share: BudgetShare) -> int:
        """Remove a truncated line, as more of it may fit now; return the tokens this frees."""
        if share.truncated_line is None:
            return 0
        line = share.shown_lines.pop(share.truncated_line)
        share.truncated_line = None
        share.tokens -= line.tokens
        self._known -= line.new_keys
        self._manual_keys -= line.new_manual_keys
        self.left += line.tokens
        return line.tokens


def _is_manual(section: Section, shape: QuotedLine | None) -> bool:
    return section.layer in _MANUAL_LAYERS or (shape is not None and shape.is_manual)
