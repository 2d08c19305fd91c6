"""However many users there are, no query that serves one of them walks them all."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg

from foremind.storage.queries import load_queries

# Tables that grow with the number of users.
_GROWING = frozenset(
    {
        "users", "relationships", "sessions", "turns", "memories", "memory_sources",
        "memory_facts", "memory_changes", "records", "record_sources", "record_revisions",
        "audit", "revocations", "traces",
    }
)  # fmt: skip
# Queries that are about everything, and why that is all right.
_ABOUT_ALL: dict[str, str] = {}
# Asked for within the database, because a driver would want values for the query's parameters.
_EXPLAIN = """
CREATE FUNCTION pg_temp.plan_of(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || query INTO plan;
    RETURN plan;
END $$
"""


async def test_no_query_walks_a_table_that_grows_with_the_users(database_url: str) -> None:
    """With sequential scans out of favour, a scan without a condition has no index to use."""
    raw = await asyncpg.connect(database_url)
    try:
        await raw.execute(f"SET enable_seqscan = off; {_EXPLAIN}")
        walked: dict[str, set[str]] = {}
        for name, query in load_queries().items():
            if (
                not query.lstrip()
                .upper()
                .startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE"))
            ):
                continue
            (plan,) = json.loads(await raw.fetchval("SELECT pg_temp.plan_of($1)", query))
            whole = {
                each["Relation Name"]
                for each in _nodes(plan["Plan"])
                if each.get("Relation Name") in _GROWING and _walks(each)
            }
            if whole and name not in _ABOUT_ALL:
                walked[name] = whole
    finally:
        await raw.close()
    assert walked == {}


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)


def _walks(node: dict[str, Any]) -> bool:
    """Tell whether a node reads a whole table, through an index or not."""
    kind = node["Node Type"]
    if kind in ("Index Scan", "Index Only Scan"):
        return "Index Cond" not in node
    return kind in ("Seq Scan", "Sample Scan", "Tid Range Scan")
