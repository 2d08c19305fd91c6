"""mem0 with pgvector, storing texts verbatim (`infer=False`)."""

import os
from typing import Any

os.environ.setdefault("OPENAI_API_KEY", "none")  # mem0 builds a client, which is never used
os.environ["MEM0_TELEMETRY"] = "False"

from harness import Store, Vector, run
from mem0 import Memory


class PrecomputedEmbedder:
    """Replaces mem0's embedder with vectors computed beforehand.

    Texts are known by their words: mem0 strips and collapses the spaces between them.
    """

    def __init__(self) -> None:
        self._vectors: dict[str, Vector] = {}

    def keep(self, text: str, vector: Vector) -> None:
        """Keep the vector of a text."""
        self._vectors[_words(text)] = vector

    def embed(self, text: str, memory_action: str | None = None) -> Vector:
        """Return the vector of a text."""
        return self._vectors[_words(text)]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[Vector]:
        """Return the vectors of texts."""
        return [self.embed(text) for text in texts]


def _words(text: str) -> str:
    return " ".join(text.split())


class Mem0Store:
    """One conversation as one user's memories."""

    def __init__(self, memory: Memory, embedder: PrecomputedEmbedder, name: str) -> None:
        self._memory, self._embedder, self._name = memory, embedder, name

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Search by vector."""
        self._embedder.keep(text, vector)
        response = self._memory.search(
            text, filters={"user_id": self._name}, top_k=limit, threshold=0.0
        )
        return [memory["metadata"]["turn"] for memory in response["results"]]


def open_store(name: str, turns: list[dict[str, Any]]) -> dict[str, Store]:
    """Store a conversation."""
    config = {
        "vector_store": {
            "provider": "pgvector",
            "config": {
                "connection_string": os.environ["COMPARE_DATABASE_URL"],
                "collection_name": "mem0",
                "embedding_model_dims": len(turns[0]["vector"]),
                "hnsw": True,
            },
        },
        "history_db_path": ":memory:",
    }
    memory = Memory.from_config(config)
    embedder = PrecomputedEmbedder()
    memory.embedding_model = embedder
    for turn in turns:
        embedder.keep(turn["text"], turn["vector"])
        memory.add(turn["text"], user_id=name, infer=False, metadata={"turn": turn["id"]})
    return {"mem0, pgvector": Mem0Store(memory, embedder, name)}


if __name__ == "__main__":
    run("mem0ai", open_store)
