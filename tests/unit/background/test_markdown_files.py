"""A relationship as a folder: what is written is read back, and only what changed is an edit."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from foremind.background.markdown_files import BASE, LAYERS, ExportedBase, edits_of, folder_of
from foremind.domain.companion import Companion, CompanionSettings
from foremind.domain.record import NOTHING_KNOWN, Record, RecordLayer, Revision

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
WREN = Companion(1, "wren", "Wren", "", "You are Wren.", CompanionSettings(), 1)
# Any text, and what could be taken for a heading, or for the end of a line.
TEXT = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8")),
        st.sampled_from(
            ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "## ", "## [2.3 goal] ",
             "## [planted] ", "<!-- made by user -->",
             "[", "]", "\\", "\\## ", " ", "# ", "1" * 5000]
        ),
    ),
    max_size=6,
).map("".join)  # fmt: skip


def record(
    number: int,
    content: str,
    layer: RecordLayer = "scratchpad",
    title: str = "",
    kind: str = "goal",
) -> Record:
    """A record of revision 3."""
    return Record(
        number, layer, kind, title, content, (), NOTHING_KNOWN, None, "rules", None, NOW, NOW, 3
    )


def written(*records: Record) -> tuple[dict[str, str], ExportedBase]:
    """The files of some records."""
    files = folder_of(7, "Ana", WREN, records, {})
    return files, msgspec.json.decode(files[BASE], type=ExportedBase)


def stored(files: dict[str, str]) -> dict[str, str]:
    """The files, written to a disk and read from it."""
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, "utf-8")
        return {name: (Path(folder) / name).read_text("utf-8") for name in files}


@given(st.lists(st.tuples(TEXT, TEXT, TEXT, st.sampled_from(LAYERS)), max_size=4))
def test_an_untouched_folder_has_no_edits(
    records: list[tuple[str, str, str, RecordLayer]],
) -> None:
    """Whatever the records say: no player's text becomes a record that a developer wrote."""
    files, base = written(
        *(
            record(number, text, layer, title, kind)
            for number, (text, title, kind, layer) in enumerate(records, 1)
        )
    )
    assert edits_of(stored(files), base) == []


@given(TEXT, TEXT, TEXT)
def test_an_edit_beside_any_text_is_the_only_one(text: str, title: str, kind: str) -> None:
    """What stands around it does not swallow it, and is not changed with it."""
    files, base = written(record(1, text, title=title, kind=kind), record(2, "run a marathon"))
    changed = stored(files)
    changed["scratchpad.md"] = changed["scratchpad.md"].replace("run a mar", "walk a mar")
    (edit,) = edits_of(changed, base)
    assert (edit.record, edit.content) == (2, "walk a marathon")


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


def test_who_made_a_record_and_when_stands_below_its_heading() -> None:
    """And is no part of what it says, whatever becomes of that line."""
    used = replace(record(1, "<!-- made by user today -->\nrun a marathon"), used=4, used_at=NOW)
    files, base = written(used)
    when = (
        "<!-- made by rules 2026-05-20 12:00, changed 2026-05-20 12:00, in 4 prompts, last "
        "2026-05-20 12:00 -->"
    )
    text = files["scratchpad.md"]
    assert f"## [1.3 goal]\n{when}\n\n\\<!-- made" in text
    assert edits_of(files, base) == []
    assert edits_of({"scratchpad.md": text.replace(f"{when}\n", "")}, base) == []


def test_earlier_states_stand_in_a_file_of_their_own() -> None:
    """Which is only to be read."""
    earlier = Revision(2, "scratchpad", "goal", "", "walk a marathon", "model", NOW)
    files = folder_of(7, "Ana", WREN, [record(1, "run a marathon")], {1: [earlier]})
    assert files["history.md"] == (
        "# history\n\n## [1.2 goal]\n<!-- made by model, until 2026-05-20 12:00 -->\n\n"
        "walk a marathon\n"
    )
    assert edits_of(files, msgspec.json.decode(files[BASE], type=ExportedBase)) == []
