"""Search the places where traces of a text may remain: database tables and live objects."""

import gc
from collections.abc import Iterator
from typing import Any

import msgspec

from foremind.domain.memory import IndexedMemory, Recalled
from foremind.domain.record import Record
from foremind.domain.relationship import TranscriptTurn
from foremind.domain.turn import Turn
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import Section
from foremind.typeahead.context_cache import PreparedContext
from tests.conftest import RunningServer, owner_of

_KINDS = (IndexedMemory, Recalled, Turn, PastTurn, PreparedContext, Section, Record, TranscriptTurn)

_MAYBE_UNTRACKED = (msgspec.Struct, tuple, dict)  # all other containers are always tracked


def objects_containing(text: str) -> set[str]:
    """Return the names of the types whose live objects contain `text`."""
    gc.unfreeze()  # include objects that were frozen when a server started
    gc.collect()
    objects = (item for item in _reachable(gc.get_objects()) if isinstance(item, _KINDS))
    return {type(item).__name__ for item in objects if text.lower() in repr(item).lower()}


def _reachable(objects: list[object]) -> Iterator[object]:
    """Iterate over objects and their members that the garbage collector does not track."""
    while objects:
        item = objects.pop()
        yield item
        if isinstance(item, msgspec.Struct):
            members = [getattr(item, field) for field in item.__struct_fields__]
        else:
            members = gc.get_referents(item)
        objects += [
            member
            for member in members
            if isinstance(member, _MAYBE_UNTRACKED) and not gc.is_tracked(member)
        ]


async def stored_text(server: RunningServer) -> str:
    """Return every row of every table as lower-case text."""
    pool = owner_of(server.app.core)
    tables = await pool.fetch(
        "SELECT format('%I', tablename) AS name FROM pg_tables WHERE schemaname = 'public'"
    )
    rows: list[Any] = []
    for table in tables:
        rows += await pool.fetch(f"SELECT whole::text FROM {table['name']} AS whole")
    return "\n".join(row[0] for row in rows).lower()
