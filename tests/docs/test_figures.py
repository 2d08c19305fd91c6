"""Every figure that a document takes from a result file is the one in that file."""

import re

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import documents
from tests.docs.stated_figures import (
    RESULTS,
    STATEMENTS,
    Statement,
    corrected,
    statements,
    wherever,
)

_LINK = re.compile(r"loadtests/results/(\w+\.json)")
_MEASURED = re.compile(r"(?<![\w.])(?:\d*\.\d+|\d[\d,]*(?= ?(?:ms|%|KiB|times)(?!\w)))(?![\w.])")
_NOT_MEASURED = re.compile(r"arXiv \d+\.\d+|\d+ ms after the last key")
_NOT_OF_A_RESULT = {"CHANGELOG.md"}  # says what was measured then


def _beside_a_link(text: str) -> list[str]:
    """Paragraphs with a link to a result, each with the tables next to it, and such table rows."""
    parts = ["", *re.split(r"\n\s*\n", text), ""]
    found = []
    for before, part, after in zip(parts, parts[1:], parts[2:], strict=False):
        if part.startswith("|"):
            found += [row for row in part.splitlines() if _LINK.search(row)]
        elif _LINK.search(part):
            tables = [table for table in (before, after) if table.startswith("|")]
            found.append("\n".join([part, *tables]) + "\n")
    return found


def _unaccounted(text: str, sentences: list[str]) -> list[str]:
    """Figures next to a link to a result that are in none of the sentences."""
    beside = "\n".join(_beside_a_link(text))
    for sentence in sentences:
        beside = wherever(sentence).sub("", beside)
    return _MEASURED.findall(_NOT_MEASURED.sub("", beside))


def _linked() -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(ROOT)), path.read_text("utf-8"))
        for path in documents()
        if path.name not in _NOT_OF_A_RESULT and _LINK.search(path.read_text("utf-8"))
    ]


def test_every_result_file_is_stated_somewhere() -> None:
    """And every statement has its file."""
    assert {path.name for path in RESULTS.glob("*.json")} == set(STATEMENTS)


@pytest.mark.parametrize(("document", "sentence"), statements(), ids=str)
def test_documents_state_the_figures_of_the_results(document: str, sentence: str) -> None:
    """Run `make docs` after a measurement."""
    text = (ROOT / document).read_text("utf-8")
    assert corrected(text, sentence) == text


def test_every_figure_next_to_a_link_to_a_result_is_checked() -> None:
    """Against the result."""
    linked = _linked()
    assert len(linked) > 4
    for document, text in linked:
        sentences = [sentence for stated, sentence in statements() if stated == document]
        assert not _unaccounted(text, sentences), document


def test_the_readme_states_the_recall_of_the_documentation() -> None:
    """Besides that of a result file, as the tuned conversations are not part of the repository."""
    readme, memory = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/memory.md"))
    for document, sentence in statements():
        if document == "README.md":
            readme = wherever(sentence).sub("", readme)
    figures = re.findall(r"(?<![\w.])\.\d{3}", readme)
    assert len(figures) == 2
    assert not [figure for figure in figures if figure not in memory]


STATED: Statement = ("A.md", "after 0.7 ms, of 1,200 messages 98%")


def test_a_stale_figure_is_corrected_in_its_place() -> None:
    """Line breaks and all other numbers stay."""
    stale = "By 3.1 ms: after 0.9\nms, of 900 messages 100% (in 2 runs)."
    correct = "By 3.1 ms: after 0.7\nms, of 1,200 messages 98% (in 2 runs)."
    assert corrected(stale, STATED[1]) == correct


def test_of_rows_that_differ_in_numbers_the_nearest_is_corrected() -> None:
    """Their labels may contain numbers."""
    rows = "| 10 users | 0.3 ms |\n| 20 users | 0.4 ms |"
    assert corrected(rows, "| 20 users | 0.5 ms |") == rows.replace("0.4", "0.5")


@pytest.mark.parametrize("text", ["No such sentence.", "x 1 ms, x 2 ms"])
def test_a_sentence_that_is_missing_or_ambiguous_is_an_error(text: str) -> None:
    """Nothing is written then."""
    with pytest.raises(ValueError, match="expected once"):
        corrected(text, "x 3 ms")


def test_a_figure_that_nobody_checks_is_noticed() -> None:
    """In a paragraph with a link to a result, or in the table next to it."""
    text = "Nothing: 1 ms.\n\nOne run ([result](loadtests/results/a.json)):\n\n| a | 5.2 ms | 7 |\n"
    assert _unaccounted(text, []) == ["5.2"]
    assert not _unaccounted(text, ["| a | 6.0 ms |"])
