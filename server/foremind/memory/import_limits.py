"""What a file may hold: every text and every list in it has a limit, as at its own door. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from foremind.domain.companion import CompanionSettings
from foremind.domain.errors import InvalidMessage
from foremind.domain.record import (
    MOST_CONTENT,
    MOST_LISTED,
    MOST_RECORDS,
    MOST_REVISIONS,
    MOST_TITLE,
)
from foremind.domain.storable_text import check_storable

MOST_TURNS = 50_000  # of one relationship
#: How much the lists of a file may hold; any other list holds at most MOST_LISTED.
MOST_OF: Mapping[str, int] = {
    "sessions": MOST_TURNS,
    "turns": MOST_TURNS,
    "memories": MOST_TURNS,
    "memories.again": MOST_TURNS,
    "records": MOST_RECORDS,
    "records.turns": MOST_TURNS,
    "records.sources": MOST_RECORDS,
    "revisions": MOST_RECORDS * MOST_REVISIONS,
    "changes": 2 * MOST_TURNS,
    "audit": 4 * MOST_TURNS,
    "progress.dismissed": 2 * MOST_RECORDS,
    "progress.remade": MOST_RECORDS,
    "progress.remade.turns": MOST_TURNS,
}
_CONTENT = frozenset({"records.content", "revisions.content"})
_SAID = frozenset({"turns.text", "memories.content"})


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """How long texts may be, in characters: what users say, and what companions answer."""

    said: int
    answered: int

    def check(self, part: object, path: str) -> None:
        """Make sure that a part of a file can be stored, and has no text or list over its limit.

        Args:
            part: a decoded file, or an element of one of its lists.
            path: its name, as in `turns[7]`; empty for a whole file.

        Raises:
            InvalidMessage: naming the field and what was expected.
        """
        check_storable(part, path)
        self._check(part, path, path.partition("[")[0], "user")

    def _check(self, part: object, path: str, kind: str, speaker: str) -> None:
        if isinstance(part, str):
            most = self._most_chars(kind, speaker)
            if len(part) > most:
                raise InvalidMessage(
                    f"{path}: expected at most {most} characters, got {len(part)}", param=path
                )
        elif isinstance(part, list | tuple):
            most = MOST_OF.get(kind, MOST_LISTED)
            if len(part) > most:
                raise InvalidMessage(
                    f"{path}: expected at most {most} elements, got {len(part)}", param=path
                )
            for position, each in enumerate(part):
                self._check(each, f"{path}[{position}]", kind, speaker)
        elif isinstance(part, msgspec.Struct) and not isinstance(part, CompanionSettings):
            # Settings have limits of their own, which they are held to when they are decoded.
            speaker = getattr(part, "speaker", speaker)
            for name in part.__struct_fields__:
                value = getattr(part, name)
                if value is not None and not isinstance(value, int | float | datetime):
                    self._check(
                        value,
                        f"{path}.{name}" if path else name,
                        f"{kind}.{name}" if kind else name,
                        speaker,
                    )

    def _most_chars(self, kind: str, speaker: str) -> int:
        if kind in _SAID:
            return self.answered if speaker == "companion" else self.said
        return MOST_CONTENT if kind in _CONTENT else MOST_TITLE
