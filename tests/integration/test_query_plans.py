"""However many users there are, no query that serves one of them walks them all."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from foremind.storage.named_queries import as_one_read, load_queries
from foremind.storage.sharding import OWNED_TABLES, OWNER_TABLE
from tests.conftest import ROOT, on_citus

pytestmark = pytest.mark.skipif(
    on_citus(), reason="Citus explains no generic plans: see test_shard_plans.py"
)
# Tables that grow with the number of users.
_GROWING = frozenset(
    {
        "users", "relationships", "sessions", "turns", "memories", "memory_sources",
        "memory_facts", "memory_changes", "records", "record_sources", "record_revisions",
        "audit", "revocations", "traces", "background_steps", "background_claims",
        "session_states",
    }
)  # fmt: skip
# Queries that are about everything, and why that is all right.
_ABOUT_ALL = {
    "revocations_since": "who was revoked meanwhile, for every session of a process",
    "full_places": "the claims of lanes that run, of which each model server has a few",
    "background_waiting": "at most 10,000 steps, from an index of those that wait or failed",
}
#: Queries that are not about one relationship, and ask every node of a sharded database.
ABOUT_SEVERAL = {
    "minds_of_accounts": "what characters know in a timeline that is deleted",
    "delete_world_events": "what all witnesses know of an event",
    "witnessed_through_time": "what a mind witnessed in the timelines of its past",
    "relationships_due": "a poll",
    "held_steps": "a poll",
    "full_places": "a poll",
    "background_waiting": "a poll",
    "relationships_to_check": "a poll",
    "renew_claims": "what a worker has claimed, of whichever relationships",
    "release_claims": "what a worker has claimed, when it ends",
    "claims_at_place": "what a model server is busy with",
    "relationships_of_user": "what a user has with every companion",
    "silent_companions": "what players have with the characters around them",
    "relationship_ids_of_user": "what a user has with every companion",
    "another_relationship": "asked for when all that a user said was erased",
    "rename_actor": "what an erased user did in the memories of others",
    "relationship_versions": "those that a process holds in memory",
    "existing_minds": "those of a character in the timelines of a world",
    "forget_world_events": "those that witnessed what a host forgets",
    "lock_witnessed_by": "the log and the minds of a player who is erased",
    "remove_witnesses": "the log and the minds of a player who is erased",
    "relationships_after": "asked when a server starts with another embedding model",
    "relationships_to_reembed": "asked when an embedding model is replaced",
}
#: Queries that a sharded database never runs.
OF_ONE_NODE = {"insert_user_turn": "it sets the relationship itself"}
#: Queries of Citus's own catalogue, which a plain database lacks.
OF_CITUS = frozenset(
    {
        "is_distributed", "is_coordinator", "foreign_keys", "tables_to_distribute",
        "nodes_for_shards", "copy_to_nodes",
        "distribute_owner", "distribute_owned", "truncate_local_data",
        "shard_nodes", "shard_tables",
    }
)  # fmt: skip
# A call that reads rows of one relationship, with the name of the query.
_READ = re.compile(r"(?:for_relationship\([^)]*\)|data|scoped)\.rows?\(\s*\"(\w+)\"")
# Asked for within the database, because a driver would want values for the query's parameters.
_EXPLAIN = """
CREATE FUNCTION pg_temp.plan_of(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || query INTO plan;
    RETURN plan;
END $$
"""


_USERS = 200_000
_MOST_ROWS = 2_000  # that the planner expects of a step that is not cut short
# A row of each table for each user, who has one relationship.
_FILLED = f"""
SET session_replication_role = replica;
INSERT INTO companions (slug, name, greeting, persona) VALUES ('wren', 'Wren', '', '');
INSERT INTO users (external_id, name) SELECT 'u' || n, 'n' FROM generate_series(1, {_USERS}) AS n;
INSERT INTO relationships (id, user_id, companion_id, due_at)
    SELECT id * 4194304 + 1, id, 1, now() + id * interval '1 s' FROM users;
INSERT INTO sessions (relationship_id, opened_at, active_at)
    SELECT id, now(), now() FROM relationships;
INSERT INTO turns
    (relationship_id, session_id, user_id, speaker, message_id, status, content, created_at, kept)
    SELECT relationship_id, id, relationship_id / 4194304, 'user', 'm', 'completed', '', now(),
        relationship_id / 4194304 % 2 = 0
    FROM sessions;
INSERT INTO memories (relationship_id, created_at, source_turn_id, significance, term_count,
        memory_type, speaker, embedding, content, version, words)
    SELECT relationship_id, now(), id, 0.5, 1, 'conversation', 'user', '[1]', '', 1, '' FROM turns;
INSERT INTO memory_sources (turn_id, memory_id, said_at, relationship_id)
    SELECT source_turn_id, id, now(), relationship_id FROM memories;
INSERT INTO memory_facts (relationship_id, speaker, slot, value, memory_id, said_at)
    SELECT relationship_id, 'user', 'home', '', id, now() FROM memories;
INSERT INTO memory_changes
    (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
    SELECT relationship_id, id, 'merged', source_turn_id, '', now() FROM memories;
INSERT INTO records (relationship_id, layer, content, made_by, created_at, updated_at)
    SELECT id, 'topics', '', 'rules', now(), now() FROM relationships;
INSERT INTO record_sources (record_id, turn_id, relationship_id)
    SELECT id, id, relationship_id FROM records;
INSERT INTO record_revisions (relationship_id, record_id, revision, layer, kind, title, content,
        made_by, replaced_at)
    SELECT relationship_id, id, 1, layer, '', '', '', made_by, now() FROM records;
INSERT INTO background_steps (relationship_id, step, lane, place, companion_id, due_at, since)
    SELECT id, 'notes', 'rules', '', 1, now() + id * interval '1 s', now() FROM relationships;
INSERT INTO background_claims (relationship_id, lane, place, holder, until)
    SELECT id, 'rules', id, gen_random_uuid(), now() FROM relationships;
INSERT INTO session_states (session_id, relationship_id, set_at)
    SELECT id, relationship_id, now() FROM sessions;
INSERT INTO audit (relationship_id, actor, action, subject, happened_at)
    SELECT id, 'u' || id, 'read', '', now() FROM relationships;
INSERT INTO revocations (subject, until) SELECT external_id, now() FROM users;
ANALYZE;
"""


@asynccontextmanager
async def _asking(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    raw = await asyncpg.connect(database_url)
    try:
        await raw.execute(_EXPLAIN)
        yield raw
    finally:
        await raw.close()


async def _plans(raw: asyncpg.Connection) -> dict[str, dict[str, Any]]:
    """The plan of every query, whatever its values, by name."""
    return {
        name: await _plan(raw, query)
        for name, query in (load_queries() | _one_reads()).items()
        if name not in OF_CITUS and has_plan(query)
    }


async def _plan(raw: asyncpg.Connection, query: str) -> dict[str, Any]:
    (plan,) = json.loads(await raw.fetchval("SELECT pg_temp.plan_of($1)", query))
    return plan["Plan"]  # type: ignore[no-any-return]


def _one_reads() -> dict[str, str]:
    """The statements that set their relationship themselves."""
    return {f"{name} alone": as_one_read(query) for name, query in reads_of_relationship().items()}


def reads_of_relationship() -> dict[str, str]:
    """Every query that only reads rows of one relationship, its first parameter."""
    return {
        name: query
        for name, query in load_queries().items()
        if re.search(r"\b(relationship_id|bond\.id|relationship\.id) = \$1\b", query)
        and not re.search(r"\b(INSERT|UPDATE|DELETE)\b", query)
    }


def has_plan(query: str) -> bool:
    """Tell whether a statement is one that is planned."""
    kind, _, _ = query.lstrip("( \n").upper().partition(" ")
    return kind in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")


async def test_no_query_walks_a_table_that_grows_with_the_users(database_url: str) -> None:
    """With sequential scans out of favour, a scan without a condition has no index to use."""
    async with _asking(database_url) as raw:
        await raw.execute("SET enable_seqscan = off")
        plans = await _plans(raw)
    walked = {
        name: whole
        for name, plan in plans.items()
        if name not in _ABOUT_ALL
        and (
            whole := {
                node["Relation Name"]
                for node, _ in _nodes(plan)
                if node.get("Relation Name") in _GROWING and _walks(node)
            }
        )
    }
    assert walked == {}


async def test_a_query_about_one_relationship_names_it_for_every_table(database_url: str) -> None:
    """By a parameter, so that a sharded database asks its node only.

    It would read the other shards for rows that only belong to rows of this relationship.
    """
    async with _asking(database_url) as raw:
        await raw.execute("SET enable_seqscan = off")
        plans = await _plans(raw)
    everywhere = {
        name
        for name, plan in plans.items()
        if not all(_names_relationship(node) for node, _ in _nodes(plan))
    }
    assert everywhere == {*ABOUT_SEVERAL, *OF_ONE_NODE}


@pytest.mark.parametrize("role", ["owner", "foremind_server"])
async def test_at_two_hundred_thousand_users_few_rows_are_read(
    database_url: str, role: str
) -> None:
    """As the planner plans where it may walk, and knows how many there are."""
    async with _asking(database_url) as raw:
        await raw.execute(_FILLED)
        if role != "owner":
            await raw.execute(f"GRANT SELECT, INSERT ON schema_migrations TO {role}")
            await raw.execute(f"SET ROLE {role}")
            await raw.execute("SELECT set_config('foremind.relationship', '29360129', false)")
        plans = await _plans(raw)
    walked = {
        name: many
        for name, plan in plans.items()
        if name not in _ABOUT_ALL
        and (
            many := [
                (node["Node Type"], node.get("Relation Name", node.get("Index Name")))
                for node, cut in _nodes(plan)
                if _of_users(node)
                and (_walks(node) or (node["Plan Rows"] > _MOST_ROWS and not cut))
            ]
        )
    }
    assert walked == {}


@pytest.mark.parametrize("method", ["", "nestloop", "seqscan", "indexscan"])
async def test_a_read_sets_its_relationship_before_a_policy_is_evaluated(
    database_url: str, method: str
) -> None:
    """Whatever the planner prefers, all that is protected is inside of the loop over `within`."""
    async with _asking(database_url) as raw:
        await raw.execute("SET ROLE foremind_server")
        if method:
            await raw.execute(f"SET enable_{method} = off")
        plans = {name: await _plan(raw, query) for name, query in _one_reads().items()}
    sources = [path.read_text("utf-8") for path in (ROOT / "server").rglob("*.py")]
    read = {name for source in sources for name in _READ.findall(source)}
    assert len(read) > 30 and read <= reads_of_relationship().keys()
    early = {name for name, plan in plans.items() if not _sets_relationship_first(plan)}
    assert early == set()
    assert sum("current_setting" in json.dumps(plan) for plan in plans.values()) > 50


def _sets_relationship_first(plan: dict[str, Any]) -> bool:
    """Tell whether a plan is a loop over the row that sets the relationship, and nothing else."""
    setting, outer, *inner = plan["Plans"]
    return (
        plan["Node Type"] == "Nested Loop"
        and [setting["Subplan Name"], outer["CTE Name"]] == ["CTE within", "within"]
        and [part["Parent Relationship"] for part in (outer, *inner)] == ["Outer", "Inner"]
        and "within.relationship IS NOT NULL" in json.dumps(inner)
        and "current_setting" not in json.dumps([setting, outer, {**plan, "Plans": []}])
    )


def _names_relationship(node: dict[str, Any]) -> bool:
    """Tell whether a step that reads a spread table is given the relationship."""
    table = node.get("Relation Name")
    if node["Node Type"] == "ModifyTable" or table not in (OWNER_TABLE, *OWNED_TABLES):
        return True
    column = "id" if table == OWNER_TABLE else "relationship_id"
    conditions = (str(node.get(key)) for key in ("Index Cond", "Recheck Cond", "Filter"))
    return any(re.search(rf"\b{column} = \(?\$\d", condition) for condition in conditions)


def _of_users(node: dict[str, Any]) -> bool:
    return node.get("Relation Name") in _GROWING or node["Node Type"] == "Bitmap Index Scan"


def _nodes(plan: dict[str, Any], cut: bool = False) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield the steps of a plan, and whether each ends once there is enough."""
    yield plan, cut
    for child in plan.get("Plans", ()):
        yield from _nodes(child, cut or plan["Node Type"] == "Limit")


def _walks(node: dict[str, Any]) -> bool:
    """Tell whether a node reads a whole table, through an index or not."""
    kind = node["Node Type"]
    if kind in ("Index Scan", "Index Only Scan"):
        return "Index Cond" not in node
    return kind in ("Seq Scan", "Sample Scan", "Tid Range Scan")
