"""LanceDB: vector search, full-text search, and both with its reciprocal rank fusion."""

import tempfile
from typing import Any

import lancedb
from harness import Store, Vector, run
from lancedb.rerankers import RRFReranker

_database = lancedb.connect(tempfile.mkdtemp(prefix="lancedb-"))


class Search:
    """One way to search a table."""

    def __init__(self, table: Any, kind: str) -> None:
        self._table = table
        self._kind = kind
        self._reranker = RRFReranker()

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Search by vector, by text, or by both."""
        if self._kind == "fts":
            query = self._table.search(text, query_type="fts")
        elif self._kind == "vector":
            query = self._table.search(vector).distance_type("cosine")
        else:
            query = self._table.search(query_type="hybrid").vector(vector).text(text)
            query = query.distance_type("cosine").rerank(self._reranker)
        return [row["id"] for row in query.select(["id"]).limit(limit).to_list()]


def open_store(name: str, turns: list[dict[str, Any]]) -> dict[str, Store]:
    """Store a conversation, with an English full-text index."""
    table = _database.create_table(name, data=turns)
    table.create_fts_index("text", language="English", stem=True, remove_stop_words=True)
    return {
        "LanceDB hybrid": Search(table, "hybrid"),
        "LanceDB full text": Search(table, "fts"),
        "LanceDB vectors": Search(table, "vector"),
    }


if __name__ == "__main__":
    run("lancedb", open_store)
