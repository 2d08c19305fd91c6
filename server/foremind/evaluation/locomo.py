"""Reads conversations in the form of LoCoMo (Maharana et al. 2024, arXiv 2402.17753).

Other sets that are kept in this form say more, which is read too: `asked_before` of a question is
the number of the session before which it is asked; `told_in_place` holds turns that are questions
themselves and were taken out, by their id; `who` of a turn is the speaker where there are several.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from foremind.domain.errors import InvalidFile
from foremind.evaluation.dialogues import Dialogue, DialogueTurn, Question

_EVIDENCE_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_DATE_FORMAT = "%I:%M %p on %d %B, %Y"
# Turns carry no times of their own: a minute apart keeps their order.
_TURN_APART = timedelta(minutes=1)


def read_locomo(path: Path) -> list[Dialogue]:
    """Read a file in LoCoMo's form: the first speaker is the user, all others the companion.

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
    user, companion = conversation["speaker_a"], conversation["speaker_b"]
    turns = [
        DialogueTurn(
            id=turn["dia_id"],
            session=str(number),
            speaker="user" if turn["speaker"] == user else "companion",
            text=_shared(turn, (user, companion)),
            said_at=started + index * _TURN_APART,
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
    conversation: dict[str, Any], in_place: dict[str, Any]
) -> Iterator[tuple[int, datetime, list[dict[str, Any]]]]:
    """Yield number, beginning and turns of each session that has any, in order."""
    put_back: dict[int, list[dict[str, Any]]] = {}
    for turn in in_place.values():
        put_back.setdefault(_place(turn)[0], []).append(turn)
    for number in sorted(
        int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key))
    ):
        turns = [*conversation[f"session_{number}"], *put_back.get(number, ())]
        if number in put_back:
            turns.sort(key=_place)
        if turns:
            said = conversation[f"session_{number}_date_time"]
            yield number, datetime.strptime(said, _DATE_FORMAT).replace(tzinfo=UTC), turns


def _place(turn: dict[str, Any]) -> tuple[int, int]:
    """Return the session and the place in it that a turn's id names ("D8:6")."""
    session, place = turn["dia_id"].removeprefix("D").split(":")
    return int(session), int(place)


def _shared(turn: dict[str, Any], names: tuple[str, str]) -> str:
    """Return what was said, with its speaker's name where it is neither of the two that talk, and
    with the caption of a picture that was shown.
    """
    text = str(turn["text"])
    who = turn.get("who", turn["speaker"])
    if who not in names and not text.startswith(f"{who}:"):
        text = f"{who}: {text}"
    caption = turn.get("blip_caption")
    return f"{text} [shares {caption}]" if caption else text


def _questions(items: list[dict[str, Any]], turns: list[DialogueTurn]) -> Iterator[Question]:
    """Yield the questions that something answers which was said before they are asked."""
    sessions = list(dict.fromkeys(turn.session for turn in turns))
    for item in items:
        before = item.get("asked_before")
        if before is None:
            place, known = None, turns
        else:
            place = next((session for session in sessions if int(session) >= int(before)), None)
            known = [turn for turn in turns if int(turn.session) < int(before)]
        evidence = _evidence(item.get("evidence", ())) & {turn.id for turn in known}
        if evidence:
            yield Question(item["question"], evidence, place)


def _evidence(entries: Any) -> frozenset[str]:
    """Return the turn ids in evidence strings, which may hold several ("D8:6; D9:17")."""
    return frozenset(match for entry in entries for match in _EVIDENCE_ID.findall(str(entry)))
