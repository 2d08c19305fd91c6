"""Read conversations in the format of LoCoMo (Maharana et al. 2024, arXiv 2402.17753).

Extensions used by other data sets in this format: `asked_before` of a question is the number of
the session before which it is asked; `told_in_place` maps ids to turns that are questions
themselves and were taken out of their sessions; `who` of a turn is its speaker where there are
more than two.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from foremind.domain.errors import InvalidFile
from foremind_eval.dialogues import Dialogue, DialogueTurn, Question

_EVIDENCE_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_DATE_FORMAT = "%I:%M %p on %d %B, %Y"
# LoCoMo has no time per turn; a minute between turns preserves their order.
_BETWEEN_TURNS = timedelta(minutes=1)


def read_locomo(path: Path) -> list[Dialogue]:
    """Read a file in LoCoMo's format: the first speaker is the user, all others the companion.

    Raises:
        InvalidFile: the file is malformed; the message names the cause.
    """
    try:
        samples = json.loads(path.read_text("utf-8"))
        if not isinstance(samples, list):
            raise TypeError(type(samples).__name__)
        return [_dialogue(sample) for sample in samples]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(
            f"{path}: expected a list of LoCoMo samples with 'conversation' and 'qa' ({error!r})"
        ) from None


def _dialogue(sample: dict[str, Any]) -> Dialogue:
    conversation = sample["conversation"]
    user, companion = conversation["speaker_a"], conversation["speaker_b"]
    turns = [
        DialogueTurn(
            id=turn["dia_id"],
            session=str(number),
            speaker="user" if turn["speaker"] == user else "companion",
            text=_text(turn, (user, companion)),
            said_at=started + index * _BETWEEN_TURNS,
        )
        for number, started, session in _sessions(conversation, sample.get("told_in_place", {}))
        for index, turn in enumerate(session)
    ]
    return Dialogue(
        id=str(sample.get("sample_id", user)),
        user_name=user,
        companion_name=companion,
        turns=tuple(turns),
        questions=tuple(_questions(sample["qa"], turns)),
    )


def _sessions(
    conversation: dict[str, Any], removed: dict[str, Any]
) -> Iterator[tuple[int, datetime, list[dict[str, Any]]]]:
    """Yield number, start and turns of each session that is not empty, in order.

    `removed` turns are put back into their sessions.
    """
    restored: dict[int, list[dict[str, Any]]] = {}
    for turn in removed.values():
        restored.setdefault(_position(turn)[0], []).append(turn)
    for number in sorted(
        int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key))
    ):
        turns = [*conversation[f"session_{number}"], *restored.get(number, ())]
        if number in restored:
            turns.sort(key=_position)
        if turns:
            started = conversation[f"session_{number}_date_time"]
            yield number, datetime.strptime(started, _DATE_FORMAT).replace(tzinfo=UTC), turns


def _position(turn: dict[str, Any]) -> tuple[int, int]:
    """Return the session and the position in it from a turn's id ("D8:6")."""
    session, position = turn["dia_id"].removeprefix("D").split(":")
    return int(session), int(position)


def _text(turn: dict[str, Any], names: tuple[str, str]) -> str:
    """Return a turn's text with the caption of its picture, and the name of any third speaker."""
    text = str(turn["text"])
    speaker = turn.get("who", turn["speaker"])
    if speaker not in names and not text.startswith(f"{speaker}:"):
        text = f"{speaker}: {text}"
    caption = turn.get("blip_caption")
    return f"{text} [shares {caption}]" if caption else text


def _questions(items: list[dict[str, Any]], turns: list[DialogueTurn]) -> Iterator[Question]:
    """Yield the questions whose evidence precedes them."""
    sessions = list(dict.fromkeys(turn.session for turn in turns))
    for item in items:
        before = item.get("asked_before")
        if before is None:
            asked_before, known = None, turns
        else:
            asked_before = next(
                (session for session in sessions if int(session) >= int(before)), None
            )
            known = [turn for turn in turns if int(turn.session) < int(before)]
        evidence = _evidence(item.get("evidence", ())) & {turn.id for turn in known}
        if evidence:
            yield Question(item["question"], evidence, asked_before)


def _evidence(entries: Any) -> frozenset[str]:
    """Return the turn ids in evidence strings, which may hold several ("D8:6; D9:17")."""
    return frozenset(match for entry in entries for match in _EVIDENCE_ID.findall(str(entry)))
