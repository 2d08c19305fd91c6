"""mem0 with pgvector, storing what it is given (`infer=False`)."""

import os
from typing import Any

os.environ.setdefault("OPENAI_API_KEY", "none")  # it builds a client that is never asked
os.environ["MEM0_TELEMETRY"] = "False"

from harness import Store, Vector, run
from mem0 import Memory


class Known:
    """Stands for its embedder: the vectors were made before."""

    def __init__(self) -> None:
        self.vectors: dict[str, Vector] = {}

    def embed(self, text: str, memory_action: str | None = None) -> Vector:
        """Return the vector of a text."""
        return self.vectors[text]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[Vector]:
        """Return the vectors of texts."""
        return [self.vectors[text] for text in texts]


class User:
    """One conversation as one user's memories."""

    def __init__(self, memory: Memory, known: Known, name: str) -> None:
        self._memory, self._known, self._name = memory, known, name

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Search as mem0 does."""
        self._known.vectors[text] = vector
        found = self._memory.search(
            text, filters={"user_id": self._name}, top_k=limit, threshold=0.0
        )
        return [each["metadata"]["turn"] for each in found["results"]]


def open_store(name: str, turns: list[dict[str, Any]]) -> dict[str, Store]:
    """Keep a conversation."""
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
    known = Known()
    memory.embedding_model = known
    for turn in turns:
        known.vectors[turn["text"]] = turn["vector"]
        memory.add(turn["text"], user_id=name, infer=False, metadata={"turn": turn["id"]})
    return {"mem0, pgvector": User(memory, known, name)}


if __name__ == "__main__":
    run("mem0ai", open_store)
