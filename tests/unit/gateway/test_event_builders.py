"""What `context.ready` says to clients that may read memories, and to those that may not."""

from datetime import UTC, datetime

import msgspec

from foremind.domain.memory import LoreView
from foremind.gateway.event_builders import MAX_LORE_VIEWS, context_ready
from foremind.gateway.protocol.server_events import encode, without_memories
from foremind.lore.lorebook import Placement
from tests.unit.llm.prompt.test_layout import lore_at
from tests.unit.typeahead.test_context_cache import context

NOW = datetime(2026, 5, 20, tzinfo=UTC)
LORE = lore_at(Placement("recalled"), Placement("before_char"))
CONTEXT = msgspec.structs.replace(context("A draft", memories=1), lore=LORE)


def test_lore_is_named_in_the_order_of_the_prompt() -> None:
    """By id and name only."""
    event = context_ready("A draft", CONTEXT, "pause", NOW, with_memories=True)
    assert event.lore == [LoreView("recalled", "recalled"), LoreView("before_char", "before_char")]
    assert b"Of recalled." not in encode(event)


def test_an_event_names_so_many_entries() -> None:
    """The first ones of the prompt."""
    many = msgspec.structs.replace(
        CONTEXT, lore=lore_at(*[Placement("recalled")] * (MAX_LORE_VIEWS + 5))
    )
    event = context_ready("A draft", many, "pause", NOW, with_memories=True)
    assert len(event.lore) == MAX_LORE_VIEWS


def test_without_the_scope_neither_memories_nor_lore_are_named() -> None:
    """In new events, and in those that are replayed after the scope was lost."""
    event = context_ready("A draft", CONTEXT, "pause", NOW, with_memories=False)
    assert not event.memories and not event.lore
    earlier = encode(context_ready("A draft", CONTEXT, "pause", NOW, with_memories=True))
    assert msgspec.json.decode(without_memories(earlier)) == msgspec.json.decode(encode(event))
