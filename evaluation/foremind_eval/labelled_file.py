"""Read labelled conversations in Foremind's own format, TOML or JSON (see docs/memory.md)."""

import tomllib
from itertools import groupby
from pathlib import Path

import msgspec

from foremind.domain.errors import InvalidFile
from foremind_eval.dialogues import Dialogue


def read_labelled(path: Path) -> list[Dialogue]:
    """Read one dialogue from a TOML or JSON file.

    Raises:
        InvalidFile: the file is malformed; the message names the field and what was expected.
    """
    try:
        raw = path.read_bytes()
        if path.suffix == ".toml":
            dialogue = msgspec.convert(tomllib.loads(raw.decode()), Dialogue)
        else:
            dialogue = msgspec.json.decode(raw, type=Dialogue)
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    sessions = [session for session, _ in groupby(turn.session for turn in dialogue.turns)]
    if len(set(sessions)) < len(sessions):
        raise InvalidFile(f"{path}: turns: expected those of a session to be consecutive")
    for index, question in enumerate(dialogue.questions):
        where, asked_before = f"{path}: questions[{index}]", question.asked_before
        if asked_before is not None and asked_before not in sessions:
            raise InvalidFile(f"{where}.asked_before: expected the session of a turn")
        earlier = sessions if asked_before is None else sessions[: sessions.index(asked_before)]
        known = {turn.id for turn in dialogue.turns if turn.session in earlier}
        if not question.evidence or not question.evidence <= known:
            raise InvalidFile(f"{where}.evidence: expected ids of turns that precede the question")
    if not dialogue.questions:
        raise InvalidFile(f"{path}: questions: expected at least one")
    return [dialogue]
