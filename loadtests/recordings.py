"""Recorded typing: files of the 136M Keystrokes study (Dhakal et al., CHI 2018).

The recordings are free for research and not part of this repository; each is a table, separated by
tabs, with one row a key press.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_BACKSPACE = "BKSP"


@dataclass(frozen=True)
class Recording:
    """One sentence as it was typed: (seconds since the first key, the draft after the key)."""

    keys: tuple[tuple[float, str], ...]

    @property
    def text(self) -> str:
        """What stood there in the end."""
        return self.keys[-1][1]


def read_recordings(paths: Iterable[Path]) -> list[list[Recording]]:
    """Return the sentences of each file; a folder counts as the files in it."""
    files = [
        each for path in paths for each in (sorted(path.glob("*.txt")) if path.is_dir() else [path])
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
            continue  # a shift, say
        keys.append(((milliseconds - presses[0][0]) / 1000, draft))
    return Recording(tuple(keys))
