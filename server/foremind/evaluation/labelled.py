"""Reads labelled conversations in Foremind's own form, TOML or JSON (see docs/memory.md)."""

import tomllib
from pathlib import Path

import msgspec

from foremind.errors import InvalidFile
from foremind.evaluation.dialogues import Dialogue


def read_labelled(path: Path) -> list[Dialogue]:
    """Read one dialogue from a TOML or JSON file.

    Raises:
        InvalidFile: it is not one; the message names the field and what was expected.
    """
    try:
        raw = path.read_bytes()
        if path.suffix == ".toml":
            dialogue = msgspec.convert(tomllib.loads(raw.decode()), Dialogue)
        else:
            dialogue = msgspec.json.decode(raw, type=Dialogue)
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    known = {turn.id for turn in dialogue.turns}
    for index, question in enumerate(dialogue.questions):
        if not question.evidence or not question.evidence <= known:
            raise InvalidFile(f"{path}: questions[{index}].evidence: expected ids of turns")
    if not dialogue.questions:
        raise InvalidFile(f"{path}: questions: expected at least one")
    return [dialogue]
