"""A relationship as a folder: what is written is read back, and only what changed is an edit."""

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from foremind.companions import Companion, CompanionSettings
from foremind.curation.files import BASE, LAYERS, Base, edits_of, folder_of
from foremind.storage.records import NOTHING_KNOWN, Record, RecordLayer

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
WREN = Companion(1, "wren", "Wren", "", "You are Wren.", CompanionSettings(), 1)
TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
)


def record(number: int, content: str, layer: RecordLayer = "scratchpad", title: str = "") -> Record:
    """A record of revision 3."""
    return Record(
        number, layer, "goal", title, content, (), NOTHING_KNOWN, None, "rules", None, NOW, NOW, 3
    )


def written(*records: Record) -> tuple[dict[str, str], Base]:
    """The files of some records."""
    files = folder_of(7, "Ana", WREN, records)
    return files, msgspec.json.decode(files[BASE], type=Base)


@given(st.lists(st.tuples(TEXT, st.sampled_from(LAYERS)), max_size=6))
def test_an_untouched_folder_has_no_edits(texts: list[tuple[str, RecordLayer]]) -> None:
    """Whatever the records say, headings and backslashes included."""
    records = [
        record(number, text, layer, text.replace("\n", " ").strip())
        for number, (text, layer) in enumerate(texts, 1)
        if text.strip()
    ]
    assert edits_of(*written(*records)) == []


def test_headings_in_a_text_stay_text() -> None:
    """A record may quote Markdown."""
    assert edits_of(*written(record(1, "a\n## [9.9 goal] b\n\\## c"))) == []


def test_what_was_changed_added_and_removed_is_found() -> None:
    """Each as one edit, with the revision that it was made for."""
    files, base = written(record(1, "run a marathon"), record(2, "learn chess"))
    text = files["scratchpad.md"].replace("a marathon", "two marathons")
    files["scratchpad.md"] = text[: text.index("## [2.")] + "## [pet] Scout\n\nA dog.\n"
    found = [(e.record, e.revision, e.kind, e.title, e.content) for e in edits_of(files, base)]
    assert found == [
        (1, 3, "goal", "", "run two marathons"),
        (None, 0, "pet", "Scout", "A dog."),
        (2, 3, "goal", "", None),
    ]


def test_a_missing_file_removes_nothing() -> None:
    """It is an accident rather than a wish."""
    files, base = written(record(1, "run a marathon"))
    del files["scratchpad.md"]
    assert edits_of(files, base) == []
