"""Measure how well the rules extract what people say about themselves, on labelled statements.

    .venv/bin/python -m training.statements.measure_rules [--half tuned|held] [--wrong]

prints precision and recall, for all statements and for each half. The rules were tuned on the
`tuned` half alone; a statement's half is determined by its hash.
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
_SINGLE_VALUED = frozenset(
    {"name", "pronouns", "age", "birthday", "home", "origin", "job", "employer"}
)


@dataclass(frozen=True, slots=True)
class LabelledStatement:
    """A text, its kind, and the profile entries to extract: titles with acceptable values."""

    kind: str
    text: str
    entries: tuple[tuple[str, frozenset[str]], ...]

    @property
    def half(self) -> Half:
        """The half that it belongs to."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return HALVES[digest[0] % 2]


@dataclass(frozen=True, slots=True)
class Score:
    """Numbers of extracted entries, of labelled entries, and of those that match."""

    found: int
    wanted: int
    right: int

    @property
    def precision(self) -> float:
        """The share of extracted entries that match a label."""
        return self.right / max(1, self.found)

    @property
    def recall(self) -> float:
        """The share of labelled entries that were extracted."""
        return self.right / max(1, self.wanted)


def read_statements(path: Path = STATEMENTS) -> list[LabelledStatement]:
    """Read labelled statements."""
    kind, statements = "", []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("## "):
            kind = line.removeprefix("## ")
        elif "=>" in line and not line.startswith("#"):
            text, _, entries = line.partition("=>")
            statements.append(LabelledStatement(kind, text.strip(), tuple(_entries(entries))))
    return statements


def _entries(text: str) -> Iterable[tuple[str, frozenset[str]]]:
    for entry in filter(str.strip, text.split(";")):
        title, _, values = entry.partition(":")
        yield title.strip(), frozenset(_normalise(value) for value in values.split("|"))


def _normalise(value: str) -> str:
    return " ".join(word for word in words_of(value) if word not in ("a", "an", "the"))


def entries_of(statements: Iterable[Statement]) -> list[tuple[str, str]]:
    """Return the entries that a profile would contain: the last of a slot with a single value."""
    latest: dict[tuple[str, str], tuple[str, str]] = {}
    for statement in statements:
        if statement.holds:
            value = _normalise(statement.content)
            single = statement.title in _SINGLE_VALUED
            key = statement.title if single else f"{statement.title}: {value}"
            latest[(statement.slot, key)] = (statement.title, value)
    return list(latest.values())


def score_of(labelled: Sequence[LabelledStatement]) -> Score:
    """Score the rules on labelled statements."""
    found = wanted = right = 0
    for label in labelled:
        entries = entries_of(statements_in(label.text))
        found += len(entries)
        wanted += len(label.entries)
        right += len(matching_entries(label, entries))
    return Score(found, wanted, right)


def matching_entries(
    label: LabelledStatement, entries: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the entries that match a labelled one, which matches at most once."""
    unmatched = list(label.entries)
    matching = []
    for title, value in entries:
        match = next(
            (wanted for wanted in unmatched if wanted[0] == title and value in wanted[1]), None
        )
        if match is not None:
            unmatched.remove(match)
            matching.append((title, value))
    return matching


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--wrong", action="store_true", help="list wrong and missing entries")
    options = parser.parse_args()
    labelled = [
        statement for statement in read_statements() if options.half in (None, statement.half)
    ]
    if options.wrong:
        _list_wrong(labelled)
    print("| statements | entries | precision | recall |\n|---|---|---|---|")
    parts: dict[str, list[LabelledStatement]] = {"all": labelled}
    parts |= {half: [label for label in labelled if label.half == half] for half in HALVES}
    for name, part in parts.items():
        if part:
            score = score_of(part)
            figures = f"{score.precision:.3f} | {score.recall:.3f}"
            print(f"| {name} ({len(part)}) | {score.wanted} | {figures} |")


def _list_wrong(labelled: Sequence[LabelledStatement]) -> None:
    for label in labelled:
        entries = entries_of(statements_in(label.text))
        right = matching_entries(label, entries)
        wrong = [entry for entry in entries if entry not in right]
        if wrong or len(right) < len(label.entries):
            wanted = [(title, sorted(values)) for title, values in label.entries]
            print(f"[{label.kind}] {label.text!r}\n    wanted {wanted}\n    found  {entries}")


if __name__ == "__main__":
    main()
