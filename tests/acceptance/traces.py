"""Where traces of what was said may be left: the database's tables, the process's own objects."""

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

_UNKNOWN = (msgspec.Struct, tuple, dict)  # perhaps; what else holds anything is known


def held_in_process(text: str) -> set[str]:
    """Return the kinds of objects that hold `text`."""
    gc.unfreeze()  # what was there when a server started counts as well
    gc.collect()
    held = (each for each in _reached(gc.get_objects()) if isinstance(each, _KINDS))
    return {type(each).__name__ for each in held if text.lower() in repr(each).lower()}


def _reached(objects: list[object]) -> Iterator[object]:
    """Go through objects, and what they hold that the collector does not know."""
    while objects:
        each = objects.pop()
        yield each
        if isinstance(each, msgspec.Struct):
            inner = [getattr(each, field) for field in each.__struct_fields__]
        else:
            inner = gc.get_referents(each)
        objects += [
            part for part in inner if isinstance(part, _UNKNOWN) and not gc.is_tracked(part)
        ]


async def stored_text(server: RunningServer) -> str:
    """Every row of every table, as text."""
    pool = owner_of(server.app.core)
    tables = await pool.fetch(
        "SELECT format('%I', tablename) AS name FROM pg_tables WHERE schemaname = 'public'"
    )
    rows: list[Any] = []
    for table in tables:
        rows += await pool.fetch(f"SELECT whole::text FROM {table['name']} AS whole")
    return "\n".join(row[0] for row in rows).lower()
