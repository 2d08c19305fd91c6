"""Runs in each system's own environment: feeds it conversations, takes the time of each question.

Standard library and numpy only: nothing of Foremind is installed there.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

Vector = list[float]


class Store(Protocol):
    """One conversation in one system."""

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Return the ids of the best turns, best first."""


def run(package: str, open_store: Callable[[str, list[dict[str, Any]]], dict[str, Store]]) -> None:
    """Read the data, ask every question of every kind of search, write what came back.

    Args:
        package: whose version is told.
        open_store: given a name and turns (`id`, `text`, `vector`); returns searches by name.
    """
    data = json.loads(Path(sys.argv[1]).read_text())
    answers: dict[str, list[dict[str, Any]]] = {}
    for number, dialogue in enumerate(data["dialogues"]):
        stores = open_store(f"talk{number}", dialogue["turns"])
        for kind, store in stores.items():
            first = dialogue["questions"][0]
            store.search(first["text"], first["vector"], data["limit"])  # what is slow once
            for question in dialogue["questions"]:
                started = time.perf_counter()
                found = store.search(question["text"], question["vector"], data["limit"])
                took = (time.perf_counter() - started) * 1000
                answers.setdefault(kind, []).append({"found": found, "ms": took})
    result = {"version": version(package), "answers": answers}
    Path(sys.argv[2]).write_text(json.dumps(result))
