"""Recorded typing: files of the 136M Keystrokes study (Dhakal et al., CHI 2018).

The recordings are free for research and not part of this repository; each is a tab-separated table
with one row per key press.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_BACKSPACE = "BKSP"


@dataclass(frozen=True)
class Recording:
    """One typed sentence: for each key, the seconds since the first key and the draft after it."""

    keys: tuple[tuple[float, str], ...]

    @property
    def text(self) -> str:
        """The finished sentence."""
        return self.keys[-1][1]

    def without_final_sign(self) -> "Recording":
        """Return the recording up to the last key after which the draft ended with a word."""
        words = [number for number, (_, draft) in enumerate(self.keys) if draft[-1:].isalnum()]
        return Recording(self.keys[: words[-1] + 1]) if words else self


def read_recordings(paths: Iterable[Path]) -> list[list[Recording]]:
    """Return the sentences of each file; a folder stands for the `.txt` files in it."""
    files = [
        file for path in paths for file in (sorted(path.glob("*.txt")) if path.is_dir() else [path])
    ]
    return [_read(file) for file in files]


def _read(path: Path) -> list[Recording]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows.sort(key=lambda row: (row["TEST_SECTION_ID"], float(row["PRESS_TIME"])))
    sentences = [
        _recording([(float(row["PRESS_TIME"]), row["LETTER"]) for row in sentence])
        for _, sentence in groupby(rows, key=lambda row: row["TEST_SECTION_ID"])
    ]
    return [sentence for sentence in sentences if sentence.keys and sentence.text.strip()]


def _recording(presses: list[tuple[float, str]]) -> Recording:
    draft, keys = "", []
    for milliseconds, letter in presses:
        if letter == _BACKSPACE:
            draft = draft[:-1]
        elif len(letter) == 1:
            draft += letter
        else:
            continue  # a modifier key
        keys.append(((milliseconds - presses[0][0]) / 1000, draft))
    return Recording(tuple(keys))
