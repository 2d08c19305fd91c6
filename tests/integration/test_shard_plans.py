"""On which nodes of a Citus cluster each query works; `test_query_plans.py` is about one node."""

import json
import re
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from foremind.storage.database import SERVER_ROLE
from foremind.storage.named_queries import load_queries
from foremind.storage.sharding import SESSION_SETTINGS
from tests.conftest import FIRST_RELATIONSHIP, on_citus
from tests.integration.test_query_plans import ABOUT_SEVERAL, OF_CITUS, OF_ONE_NODE, has_plan

pytestmark = pytest.mark.skipif(not on_citus(), reason="this is not a Citus cluster")
# Queries of the tables that only the coordinator has, to one of which the server may not write.
_UNPLANNED = {*OF_CITUS, *OF_ONE_NODE, "record_migration"}
_TYPES = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'asked'"
_VALUES = {
    "bigint": str(FIRST_RELATIONSHIP), "integer": "1", "smallint": "1", "boolean": "true",
    "real": "0.5", "double precision": "0.5", "numeric": "1", "text": "x", "json": "{}",
    "jsonb": "{}", "bytea": "x", "halfvec": "[1]", "interval": "1 hour",
    "timestamp with time zone": "2026-09-25 12:00Z", "uuid": "00000000-0000-0000-0000-000000000001",
}  # fmt: skip


@pytest.fixture
async def plans(database_url: str) -> dict[str, Any]:
    """How the cluster runs every query with some values, by name."""
    raw = await asyncpg.connect(database_url)
    try:
        await raw.execute(SESSION_SETTINGS)
        await raw.execute(f"SET ROLE {SERVER_ROLE}")
        return {
            name: await _plan(raw, query)
            for name, query in load_queries().items()
            if name not in _UNPLANNED and has_plan(query)
        }
    finally:
        await raw.close()


async def test_a_query_about_one_relationship_asks_one_node(plans: dict[str, Any]) -> None:
    """Each of its steps has one task; nothing is brought from other shards."""
    everywhere = {
        name for name, plan in plans.items() if any(count > 1 for count in _of(plan, "Task Count"))
    }
    assert everywhere == ABOUT_SEVERAL.keys() - {"relationship_versions"}  # of one, here


async def test_ids_are_numbered_by_the_coordinator(plans: dict[str, Any]) -> None:
    """Each worker has a sequence of its own, whose numbers are in no order with the others."""
    numbered = {name for name, plan in plans.items() if "nextval" in json.dumps(plan)}
    assert {"insert_reply", "insert_memory", "insert_record"} <= numbered
    on_workers = {
        name for name, plan in plans.items() if any("nextval" in sql for sql in _of(plan, "Query"))
    }
    assert on_workers == set()


async def _plan(raw: asyncpg.Connection, query: str) -> Any:
    """Explain a query with values in place of its parameters, without running it."""
    transaction = raw.transaction()
    await transaction.start()
    try:
        await raw.execute(f"SET LOCAL foremind.relationship = '{FIRST_RELATIONSHIP}'")
        await raw.execute(f"PREPARE asked AS {query}")
        types = await raw.fetchval(_TYPES)
        await raw.execute("DEALLOCATE asked")
        valued = re.sub(r"\$(\d+)", lambda found: _value(types[int(found[1]) - 1]), query)
        return json.loads(await raw.fetchval(f"EXPLAIN (VERBOSE, FORMAT JSON) {valued}"))
    finally:
        await transaction.rollback()


def _value(kind: str) -> str:
    element = kind.removesuffix("[]")
    value = f"'{_VALUES[element]}'::{element}"
    return value if element == kind else f"ARRAY[{value}]"


def _of(plan: Any, key: str) -> Iterator[Any]:
    """Yield every value of a key, of all nodes of a plan."""
    if isinstance(plan, dict):
        for name, value in plan.items():
            if name == key:
                yield value
            yield from _of(value, key)
    elif isinstance(plan, list):
        for item in plan:
            yield from _of(item, key)
