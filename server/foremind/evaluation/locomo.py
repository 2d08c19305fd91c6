"""Reads conversations in the form of LoCoMo (Maharana et al. 2024, arXiv 2402.17753)."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from foremind.errors import InvalidFile
from foremind.evaluation.dialogues import Dialogue, Question, SaidTurn

_EVIDENCE_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_DATE_FORMAT = "%I:%M %p on %d %B, %Y"
# Turns carry no times of their own: a minute apart keeps their order.
_TURN_APART = timedelta(minutes=1)


def read_locomo(path: Path) -> list[Dialogue]:
    """Read a LoCoMo file: the first speaker is the user, the second the companion.

    Raises:
        InvalidFile: it is not one; the message says where.
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
    user = conversation["speaker_a"]
    turns = [
        SaidTurn(
            id=turn["dia_id"],
            session=started.isoformat(),
            speaker="user" if turn["speaker"] == user else "companion",
            text=_shared(turn),
            said_at=started + index * _TURN_APART,
        )
        for started, session in _sessions(conversation)
        for index, turn in enumerate(session)
    ]
    known = {turn.id for turn in turns}
    questions = [
        Question(item["question"], evidence)
        for item in sample["qa"]
        if (evidence := _evidence(item.get("evidence", ())) & known)
    ]
    return Dialogue(
        id=str(sample.get("sample_id", user)),
        user_name=user,
        companion_name=conversation["speaker_b"],
        turns=tuple(turns),
        questions=tuple(questions),
    )


def _sessions(conversation: dict[str, Any]) -> list[tuple[datetime, list[dict[str, Any]]]]:
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    return [
        (
            datetime.strptime(conversation[f"session_{number}_date_time"], _DATE_FORMAT).replace(
                tzinfo=UTC
            ),
            conversation[f"session_{number}"],
        )
        for number in numbers
    ]


def _shared(turn: dict[str, Any]) -> str:
    """Return what was said, with the caption of a picture that was shown."""
    caption = turn.get("blip_caption")
    return f"{turn['text']} [shares {caption}]" if caption else str(turn["text"])


def _evidence(entries: Any) -> frozenset[str]:
    """Return the turn ids in evidence strings, which may hold several ("D8:6; D9:17")."""
    return frozenset(match for entry in entries for match in _EVIDENCE_ID.findall(str(entry)))
