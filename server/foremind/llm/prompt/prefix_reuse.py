"""Lays a prompt out so that it shares a prefix with one that the model has cached. Pure.

What the earlier prompt recalled stays in its place, and what is newly recalled follows it. Where
that does not fit, or the draft has changed its subject, the fresh layout is used.
"""

from collections.abc import Sequence
from dataclasses import replace

from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.prompt.layout import Prompt
from foremind.llm.prompt.sections import Section
from foremind.text.sentences import sentence_keys_in

_MIN_OVERLAP = 0.5  # share of the recalled lines that must be recalled again
_TAG_TOKENS = 8  # of the tags around a section


def reuse_prefix(earlier: Prompt, fresh: AssembledPrompt) -> AssembledPrompt:
    """Return `fresh` laid out as a continuation of `earlier`, or unchanged.

    The result contains everything in `fresh`; what only `earlier` contained fits `fresh.spare`.
    """
    new = fresh.prompt
    if not earlier.recalled or not _shares_prefix(earlier, new):
        return fresh
    present = [*earlier.recalled, *(section for part in earlier.added for section in part)]
    present_lines = {(section.layer, line) for section in present for line in section.lines}
    new_lines = {(section.layer, line) for section in new.recalled for line in section.lines}
    if len(present_lines & new_lines) < _MIN_OVERLAP * len(present_lines):
        return fresh
    added = tuple(
        extra for section in new.recalled if (extra := _without(section, present_lines)).lines
    )
    if _sentence_keys(added) & _sentence_keys(present) or sentence_keys_in(
        new.message
    ) & _sentence_keys(present):
        return fresh  # a sentence would appear twice
    obsolete = [_without(section, new_lines) for section in present]
    extra_tokens = sum(sum(section.tokens) for section in obsolete) + _TAG_TOKENS * (
        len(added) + len(earlier.added)
    )
    if extra_tokens > fresh.spare:
        return fresh
    tokens = dict(fresh.tokens)
    for section in obsolete:
        tokens[section.layer] = tokens.get(section.layer, 0) + sum(section.tokens)
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
    return AssembledPrompt(prompt, tokens, fresh.post_reply_behaviours, fresh.spare - extra_tokens)


def _shares_prefix(earlier: Prompt, new: Prompt) -> bool:
    """Return whether everything before the recalled sections, and everything volatile, is equal."""
    return (
        earlier.messages()[:-1] == new.messages()[:-1]
        and earlier.history == new.history  # unanswered turns are part of the last message
        and earlier.instructions == new.instructions
        and earlier.closing == new.closing
        and earlier.lore.at("depth") == new.lore.at("depth")  # some is before the last message
        and _state_sections(earlier) == _state_sections(new)
        and earlier.now.date() == new.now.date()
    )


def _state_sections(prompt: Prompt) -> list[Section]:
    return [section for section in prompt.recalled if section.layer == "state"]


def _without(section: Section, known: set[tuple[LayerName, str]]) -> Section:
    """Return a section's lines that are not `known`."""
    lines = enumerate(section.lines)
    return section.only([number for number, line in lines if (section.layer, line) not in known])


def _sentence_keys(sections: Sequence[Section]) -> set[int]:
    """Return the keys of the sentences in sections."""
    shapes = (shape for section in sections for shape in section.shapes)
    return {key for shape in shapes if shape is not None for key in shape.keys}
