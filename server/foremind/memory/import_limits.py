"""Limits of an import file: every text and list has one, as over the API. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from foremind.domain.companion import CompanionSettings
from foremind.domain.errors import InvalidMessage
from foremind.domain.record import (
    MAX_CONTENT_CHARS,
    MAX_LIST_ITEMS,
    MAX_RECORDS,
    MAX_REVISIONS,
    MAX_TITLE_CHARS,
)
from foremind.domain.storable_text import check_storable

_MAX_TURNS = 50_000  # of one relationship
#: Maximum length of the lists of a file; any other list has at most MOST_LISTED elements.
MAX_ELEMENTS: Mapping[str, int] = {
    "sessions": _MAX_TURNS,
    "turns": _MAX_TURNS,
    "memories": _MAX_TURNS,
    "memories.again": _MAX_TURNS,
    "records": MAX_RECORDS,
    "records.turns": _MAX_TURNS,
    "records.sources": MAX_RECORDS,
    "revisions": MAX_RECORDS * MAX_REVISIONS,
    "changes": 2 * _MAX_TURNS,
    "audit": 4 * _MAX_TURNS,
    "progress.dismissed": 2 * MAX_RECORDS,
    "progress.remade": MAX_RECORDS,
    "progress.remade.turns": _MAX_TURNS,
}
_CONTENT = frozenset({"records.content", "revisions.content"})
_UTTERANCES = frozenset({"turns.text", "memories.content"})


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Maximum length of texts in characters: of users' messages and of companions' replies."""

    user_chars: int
    companion_chars: int

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
        """Check a part recursively; `kind` is its path without positions."""
        if isinstance(part, str):
            max_chars = self._max_chars(kind, speaker)
            if len(part) > max_chars:
                raise InvalidMessage(
                    f"{path}: expected at most {max_chars} characters, got {len(part)}", param=path
                )
        elif isinstance(part, list | tuple):
            max_elements = MAX_ELEMENTS.get(kind, MAX_LIST_ITEMS)
            if len(part) > max_elements:
                raise InvalidMessage(
                    f"{path}: expected at most {max_elements} elements, got {len(part)}",
                    param=path,
                )
            for position, element in enumerate(part):
                self._check(element, f"{path}[{position}]", kind, speaker)
        elif isinstance(part, msgspec.Struct) and not isinstance(part, CompanionSettings):
            # Settings have limits of their own, which are checked when they are decoded.
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

    def _max_chars(self, kind: str, speaker: str) -> int:
        if kind in _UTTERANCES:
            return self.companion_chars if speaker == "companion" else self.user_chars
        # What was pinned may be as long as the message that asked for it.
        return max(MAX_CONTENT_CHARS, self.user_chars) if kind in _CONTENT else MAX_TITLE_CHARS
