"""Sections without deduplication, to measure what it saves: each layer says all that it holds."""

from collections.abc import Mapping

from msgspec.structs import replace

from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.prompt.quoted_lines import QuotedLine
from foremind.llm.prompt.sections import Section


def repeating(sections: Mapping[LayerName, Section]) -> dict[LayerName, Section]:
    """Return sections that no sentence is left out of because it appears elsewhere."""
    return {layer: _repeating_section(section) for layer, section in sections.items()}


def _repeating_section(section: Section) -> Section:
    shapes = tuple(None if shape is None else _without_keys(shape) for shape in section.shapes)
    return replace(section, shapes=shapes, says=frozenset(), states=False)


def _without_keys(shape: QuotedLine) -> QuotedLine:
    quotes = tuple(replace(quote, keys=(0,) * len(quote.keys)) for quote in shape.quotes)
    return replace(shape, quotes=quotes, keys=frozenset(), day=None, states=None)
