"""How well do the rules read what somebody says of themselves? Measured on labelled statements.

    .venv/bin/python -m training.statements.measure [--half tuned|held] [--wrong]

prints precision and recall, for all statements and for each half. The rules were adjusted on the
`tuned` half alone; which half a statement belongs to is decided by its hash.
"""

import argparse
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import words_of

STATEMENTS = Path(__file__).with_name("statements.txt")
Half = Literal["tuned", "held"]
HALVES: tuple[Half, ...] = ("tuned", "held")


@dataclass(frozen=True, slots=True)
class Labelled:
    """Something said, its kind, and the entries that it holds: titles with the values that fit."""

    kind: str
    text: str
    entries: tuple[tuple[str, frozenset[str]], ...]

    @property
    def half(self) -> Half:
        """Which half it belongs to."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return HALVES[digest[0] % 2]


@dataclass(frozen=True, slots=True)
class Score:
    """Entries that were found, that were to be found, and that are both."""

    found: int
    wanted: int
    right: int

    @property
    def precision(self) -> float:
        """The share of what was found that is right."""
        return self.right / max(1, self.found)

    @property
    def recall(self) -> float:
        """The share of what was to be found that was."""
        return self.right / max(1, self.wanted)


def read_statements(path: Path = STATEMENTS) -> list[Labelled]:
    """Read the labelled statements."""
    kind, found = "", []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("## "):
            kind = line.removeprefix("## ")
        elif "=>" in line and not line.startswith("#"):
            text, _, entries = line.partition("=>")
            found.append(Labelled(kind, text.strip(), tuple(_entries(entries))))
    return found


def _entries(written: str) -> Iterable[tuple[str, frozenset[str]]]:
    for each in filter(str.strip, written.split(";")):
        title, _, values = each.partition(":")
        yield title.strip(), frozenset(_plain(value) for value in values.split("|"))


def _plain(value: str) -> str:
    return " ".join(each for each in words_of(value) if each not in ("a", "an", "the"))


def entries_of(statements: Iterable[Statement]) -> list[tuple[str, str]]:
    """Return what a profile would hold: of a slot of one value, the last."""
    last: dict[tuple[str, str], tuple[str, str]] = {}
    for statement in statements:
        if statement.holds:
            value = _plain(statement.content)
            many = statement.title if statement.title in _ONE else f"{statement.title}: {value}"
            last[(statement.slot, many)] = (statement.title, value)
    return list(last.values())


_ONE = frozenset({"name", "pronouns", "age", "birthday", "home", "origin", "job", "employer"})


def score_of(labelled: Sequence[Labelled]) -> Score:
    """Measure the rules on statements."""
    found = wanted = right = 0
    for each in labelled:
        entries = entries_of(statements_in(each.text))
        found += len(entries)
        wanted += len(each.entries)
        right += len(matched(each, entries))
    return Score(found, wanted, right)


def matched(labelled: Labelled, entries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the entries that a label asks for, each label once."""
    open_labels = list(labelled.entries)
    right = []
    for entry in entries:
        fits = next(
            (
                open_label
                for open_label in open_labels
                if open_label[0] == entry[0] and entry[1] in open_label[1]
            ),
            None,
        )
        if fits is not None:
            open_labels.remove(fits)
            right.append(entry)
    return right


def main() -> None:
    """Print how well the rules do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--wrong", action="store_true", help="list what is wrong or missing")
    asked = parser.parse_args()
    labelled = [
        statement for statement in read_statements() if asked.half in (None, statement.half)
    ]
    if asked.wrong:
        _list_wrong(labelled)
    print("| statements | entries | precision | recall |\n|---|---|---|---|")
    parts: dict[str, list[Labelled]] = {"all": labelled}
    parts |= {half: [each for each in labelled if each.half == half] for half in HALVES}
    for name, part in parts.items():
        if part:
            score = score_of(part)
            figures = f"{score.precision:.3f} | {score.recall:.3f}"
            print(f"| {name} ({len(part)}) | {score.wanted} | {figures} |")


def _list_wrong(labelled: Sequence[Labelled]) -> None:
    for each in labelled:
        entries = entries_of(statements_in(each.text))
        right = matched(each, entries)
        wrong = [entry for entry in entries if entry not in right]
        if wrong or len(right) < len(each.entries):
            wanted = [(title, sorted(values)) for title, values in each.entries]
            print(f"[{each.kind}] {each.text!r}\n    wanted {wanted}\n    found  {entries}")


if __name__ == "__main__":
    main()
