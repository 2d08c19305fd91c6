"""Runs in each system's own environment: loads conversations, times the search for each question.

Standard library only, since Foremind is not installed there.
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
    """One conversation in one system, with one kind of search."""

    def search(self, text: str, vector: Vector, limit: int) -> list[str]:
        """Return the ids of the best turns, best first."""


def run(package: str, open_store: Callable[[str, list[dict[str, Any]]], dict[str, Store]]) -> None:
    """Read the data, run every question through every kind of search, write the results.

    Args:
        package: the distribution whose version is reported.
        open_store: stores turns (`id`, `text`, `vector`) under a name; returns searches by name.
    """
    data = json.loads(Path(sys.argv[1]).read_text())
    answers: dict[str, list[dict[str, Any]]] = {}
    for number, dialogue in enumerate(data["dialogues"]):
        stores = open_store(f"talk{number}", dialogue["turns"])
        for kind, store in stores.items():
            first = dialogue["questions"][0]
            store.search(first["text"], first["vector"], data["limit"])  # warm up
            for question in dialogue["questions"]:
                started = time.perf_counter()
                matches = store.search(question["text"], question["vector"], data["limit"])
                elapsed_ms = (time.perf_counter() - started) * 1000
                answers.setdefault(kind, []).append({"found": matches, "ms": elapsed_ms})
    result = {"version": version(package), "answers": answers}
    Path(sys.argv[2]).write_text(json.dumps(result))
