"""txtai: hybrid search, vector and BM25, with its default weights."""

from typing import Any

import numpy as np
from harness import Store, Vector, run
from txtai.embeddings import Embeddings


class Index:
    """One conversation as an index with precomputed vectors."""

    def __init__(self, turns: list[dict[str, Any]]) -> None:
        self._vectors = vectors = {turn["text"]: turn["vector"] for turn in turns}

        def embed(texts: list[str]) -> np.ndarray:
            return np.array([vectors[text] for text in texts], np.float32)

        self._embeddings = Embeddings(
            {"method": "external", "transform": embed, "hybrid": True, "content": False}
        )
        self._embeddings.index((turn["id"], turn["text"], None) for turn in turns)

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Search by vector and text."""
        self._vectors[text] = vector
        return [turn_id for turn_id, _ in self._embeddings.search(text, limit)]


def open_store(name: str, turns: list[dict[str, Any]]) -> dict[str, Store]:
    """Store a conversation."""
    return {"txtai hybrid": Index(turns)}


if __name__ == "__main__":
    run("txtai", open_store)
