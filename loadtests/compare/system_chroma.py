"""Chroma: vector search in process, with its default index."""

from typing import Any

import chromadb
from harness import Store, Vector, run

_client = chromadb.EphemeralClient()
_BATCH = 1000


class Collection:
    """One conversation as a collection."""

    def __init__(self, name: str, turns: list[dict[str, Any]]) -> None:
        self._turns = _client.create_collection(
            name, metadata={"hnsw:space": "cosine"}, embedding_function=None
        )
        for first in range(0, len(turns), _BATCH):
            batch = turns[first : first + _BATCH]
            self._turns.add(
                ids=[turn["id"] for turn in batch],
                documents=[turn["text"] for turn in batch],
                embeddings=[turn["vector"] for turn in batch],
            )

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Search by vector."""
        results = self._turns.query(query_embeddings=[vector], n_results=limit)
        return list(results["ids"][0])


def open_store(name: str, turns: list[dict[str, Any]]) -> dict[str, Store]:
    """Store a conversation."""
    return {"Chroma": Collection(name, turns)}


if __name__ == "__main__":
    run("chromadb", open_store)
