"""txtai: vectors and BM25 with its default weights."""

from typing import Any

import numpy as np
from harness import Store, Vector, run
from txtai.embeddings import Embeddings


class Index:
    """One conversation as an index whose vectors are made elsewhere."""

    def __init__(self, turns: list[dict[str, Any]]) -> None:
        self._known = known = {turn["text"]: turn["vector"] for turn in turns}

        def vectors(texts: list[str]) -> np.ndarray:
            return np.array([known[text] for text in texts], np.float32)

        self._embeddings = Embeddings(
            {"method": "external", "transform": vectors, "hybrid": True, "content": False}
        )
        self._embeddings.index((turn["id"], turn["text"], None) for turn in turns)

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Search by both."""
        self._known[text] = vector
        return [each for each, _ in self._embeddings.search(text, limit)]


def open_store(name: str, turns: list[dict[str, Any]]) -> dict[str, Store]:
    """Keep a conversation."""
    return {"txtai hybrid": Index(turns)}


if __name__ == "__main__":
    run("txtai", open_store)
