"""Search the places where traces of a text may remain: database tables and live objects."""

import gc
from collections.abc import Iterator
from itertools import compress
from typing import Any

import msgspec

from foremind.domain.memory import IndexedMemory, Recalled
from foremind.domain.record import Record
from foremind.domain.relationship import TranscriptTurn
from foremind.domain.turn import Turn
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import Section
from foremind.typeahead.context_cache import PreparedContext
from tests.conftest import LASTING, RunningServer, owner_of

_KINDS = (IndexedMemory, Recalled, Turn, PastTurn, PreparedContext, Section, Record, TranscriptTurn)

_MAYBE_UNTRACKED = (msgspec.Struct, tuple, dict)  # all other containers are always tracked


def objects_containing(text: str) -> set[str]:
    """Return the names of the types whose live objects contain `text`."""
    gc.collect()
    text = text.lower()
    return {type(item).__name__ for item in _live_objects() if text in repr(item).lower()}


def _live_objects() -> Iterator[object]:
    """Iterate over the live objects of these kinds, also those that the collector does not track.

    Such an object is met once for each container that holds it.
    """
    containers = [*gc.get_objects(), *LASTING]
    while containers:
        yield from _instances(containers, _KINDS)
        members = gc.get_referents(*containers)
        for struct in _instances(containers, (msgspec.Struct,)):
            members += [getattr(struct, field) for field in struct.__struct_fields__]
        containers = [
            member for member in _instances(members, _MAYBE_UNTRACKED) if not gc.is_tracked(member)
        ]


def _instances(objects: list[Any], kinds: tuple[type, ...]) -> list[Any]:
    """Return the instances of these types; each type is looked at once, as there are millions."""
    types = {kind for kind in set(map(type, objects)) if issubclass(kind, kinds)}
    if not types:
        return []
    return list(compress(objects, map(types.__contains__, map(type, objects))))


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
