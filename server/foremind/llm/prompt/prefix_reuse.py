"""Lays a prompt out so that it begins like one that the model has read. Pure.

What the earlier prompt recalled stays where it is, and what is recalled beyond it follows. Where
that does not fit, or the draft has turned to something else, the fresh layout stands.
"""

from collections.abc import Sequence
from dataclasses import replace

from foremind.domain.settings import LayerName
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.prompt.layout import Prompt
from foremind.llm.prompt.sections import Section
from foremind.text.sentences import said_in

_SAME_MATTER = 0.5  # share of what was recalled that must be recalled again
_BLOCK = 8  # tokens of the tags around what follows


def staying(earlier: Prompt, fresh: AssembledPrompt) -> AssembledPrompt:
    """Return `fresh` laid out as a continuation of `earlier`, or as it is.

    It holds all that `fresh` holds; what only `earlier` held is in it too, within `fresh.spare`.
    """
    new = fresh.prompt
    if not earlier.recalled or not _begins_alike(earlier, new):
        return fresh
    before = [*earlier.recalled, *(each for part in earlier.added for each in part)]
    there = {(each.layer, line) for each in before for line in each.lines}
    wanted = {(each.layer, line) for each in new.recalled for line in each.lines}
    if len(there & wanted) < _SAME_MATTER * len(there):
        return fresh
    added = tuple(more for each in new.recalled if (more := _beyond(each, there)).lines)
    if _says(added) & _says(before) or said_in(new.message) & _says(before):
        return fresh  # a sentence would stand twice
    leftover = [_beyond(each, wanted) for each in before]
    extra = sum(sum(each.tokens) for each in leftover) + _BLOCK * (len(added) + len(earlier.added))
    if extra > fresh.spare:
        return fresh
    tokens = dict(fresh.tokens)
    for each in leftover:
        tokens[each.layer] = tokens.get(each.layer, 0) + sum(each.tokens)
    known = {memory.id for memory in new.memories}
    prompt = replace(
        new,
        recalled=earlier.recalled,
        added=(*earlier.added, added) if added else earlier.added,
        memories=(
            *new.memories,
            *(memory for memory in earlier.memories if memory.id not in known),
        ),
    )
    return AssembledPrompt(prompt, tokens, fresh.afterwards, fresh.spare - extra)


def _begins_alike(earlier: Prompt, new: Prompt) -> bool:
    """Tell whether everything before what is recalled is the same, and what may not linger."""
    return (
        earlier.messages()[:-1] == new.messages()[:-1]
        and earlier.history == new.history  # what is not answered stands in the last message
        and earlier.instructions == new.instructions
        and _going_on(earlier) == _going_on(new)
        and earlier.now.date() == new.now.date()
    )


def _going_on(prompt: Prompt) -> list[Section]:
    return [each for each in prompt.recalled if each.layer == "state"]


def _beyond(section: Section, known: set[tuple[LayerName, str]]) -> Section:
    """Return a section's lines that are not `known`."""
    lines = enumerate(section.lines)
    return section.only([each for each, line in lines if (section.layer, line) not in known])


def _says(sections: Sequence[Section]) -> set[int]:
    """Return the sentences that sections hold."""
    shapes = (shape for section in sections for shape in section.shapes)
    return {key for shape in shapes if shape is not None for key in shape.keys}
