"""Named SQL queries in `sql/queries/`, each with a name and one plain sentence."""

import re
from functools import cache
from pathlib import Path

from foremind.runtime.assets import asset

_ONE_READ = """\
WITH within AS MATERIALIZED (
    SELECT set_config('foremind.relationship', $1::bigint::text, true) AS relationship
)
SELECT found.* FROM within CROSS JOIN LATERAL (
SELECT * FROM (
{query}
) AS asked
WHERE within.relationship IS NOT NULL OFFSET 0
) AS found"""
_VECTORS = re.compile(r"\b(other_)?embedding\b")
_HEADER = re.compile(r"^-- name: (\w+)\n-- (.+\.)\n(?:--.*\n)*", re.MULTILINE)


@cache
def load_queries(*, swapped: bool = False) -> dict[str, str]:
    """Return the SQL of every named query.

    Args:
        swapped: whether the vectors that are searched are in the columns `other_embedding`.

    Raises:
        ValueError: a query lacks a name or sentence, or a name is used twice.
    """
    if swapped:
        return {name: _swapped(sql) for name, sql in load_queries().items()}
    queries: dict[str, str] = {}
    for path in sorted((asset("sql") / "queries").glob("*.sql")):
        for name, sql in _parse(path):
            if name in queries:
                raise ValueError(f"{path}: {name} is defined twice")
            queries[name] = sql
    return queries


@cache
def as_one_read(query: str) -> str:
    """Return a query, whose first parameter is a relationship, as a statement that sets it itself.

    Row-level security examines no row before: the query refers to `within`, and OFFSET 0 keeps the
    planner from mixing the two, so it begins once a row has come out of `within`. The setting ends
    with the statement. A query that writes cannot be put like this.
    """
    return _ONE_READ.format(query=query)


def _swapped(sql: str) -> str:
    """Exchange the two columns of vectors, and what is named like them."""
    return _VECTORS.sub(lambda match: "embedding" if match[1] else "other_embedding", sql)


def _parse(path: Path) -> list[tuple[str, str]]:
    text = path.read_text("utf-8")
    headers = list(_HEADER.finditer(text))
    if not headers or headers[0].start() != 0 or text.count("-- name:") != len(headers):
        raise ValueError(f"{path}: every query needs '-- name: ...' and a sentence below it")
    ends = [following.start() for following in headers[1:]] + [len(text)]
    return [
        (header[1], text[header.end() : end].strip().removesuffix(";"))
        for header, end in zip(headers, ends, strict=True)
    ]
