"""Read MADial-Bench (He et al. 2024, arXiv 2409.15240): which memories fit a dialogue?"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from foremind.domain.errors import InvalidFile
from foremind_eval.dialogues import Dialogue, DialogueTurn, Question

_DIALOGUES = "MADial-Bench-en-dialogue.json"
_MEMORIES = "MADial-Bench-en-memory.json"
_MARKERS = ("<BOD>", "<EOD>")
_USER = "Child"


def read_madial(folder: Path) -> list[Dialogue]:
    """Read the English half: every memory is a session of one turn, and every dialogue up to its
    first test turn is a question.

    Raises:
        InvalidFile: a file is missing or malformed.
    """
    try:
        memories: dict[str, Any] = {}
        for line in _json_lines(folder / _MEMORIES):
            memories |= line
        turns = tuple(
            DialogueTurn(
                id=number,
                session=number,
                speaker="user",
                text=memory["event"],
                said_at=datetime.fromisoformat(memory["time"]).replace(tzinfo=UTC),
            )
            for number, memory in sorted(memories.items(), key=lambda item: item[1]["time"])
        )
        questions = tuple(
            Question(_before_test_turn(line), frozenset(map(str, line["relevant-id"])))
            for line in _json_lines(folder / _DIALOGUES)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(
            f"{folder}: expected {_DIALOGUES} and {_MEMORIES}, one JSON object per line ({error!r})"
        ) from None
    return [Dialogue("madial", _USER, "Assistant", turns, questions)]


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text("utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def _before_test_turn(dialogue: dict[str, Any]) -> str:
    lines = dialogue["dialogue"][: min(dialogue["test-turn"])]
    return " ".join(line.strip() for line in lines if line.strip() not in _MARKERS)
