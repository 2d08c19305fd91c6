"""Markdown export: it parses back, and only changed records are edits."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from foremind.background.markdown_files import BASE, LAYERS, ExportedBase, find_edits, render_folder
from foremind.domain.companion import Companion, CompanionSettings
from foremind.domain.record import NO_DETAILS, Record, RecordLayer, Revision

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
WREN = Companion(1, "wren", "Wren", "", "You are Wren.", CompanionSettings(), 1)
# Any text, including what could be mistaken for a heading or a line break.
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
        number, layer, kind, title, content, (), NO_DETAILS, None, "rules", None, NOW, NOW, 3
    )


def exported(*records: Record) -> tuple[dict[str, str], ExportedBase]:
    """The files and the base of an export."""
    files = render_folder(7, "Ana", WREN, records, {})
    return files, msgspec.json.decode(files[BASE], type=ExportedBase)


def through_disk(files: dict[str, str]) -> dict[str, str]:
    """The files after a round trip through a disk."""
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, "utf-8")
        return {name: (Path(folder) / name).read_text("utf-8") for name in files}


@given(st.lists(st.tuples(TEXT, TEXT, TEXT, st.sampled_from(LAYERS)), max_size=4))
def test_an_untouched_folder_has_no_edits(
    records: list[tuple[str, str, str, RecordLayer]],
) -> None:
    """For any text: no player's words can become a developer's record."""
    files, base = exported(
        *(
            record(number, text, layer, title, kind)
            for number, (text, title, kind, layer) in enumerate(records, 1)
        )
    )
    assert find_edits(through_disk(files), base) == []


@given(TEXT, TEXT, TEXT)
def test_an_edit_next_to_any_text_is_the_only_one(text: str, title: str, kind: str) -> None:
    """Surrounding text neither swallows it nor changes with it."""
    files, base = exported(record(1, text, title=title, kind=kind), record(2, "run a marathon"))
    changed = through_disk(files)
    changed["scratchpad.md"] = changed["scratchpad.md"].replace("run a mar", "walk a mar")
    (edit,) = find_edits(changed, base)
    assert (edit.record, edit.content) == (2, "walk a marathon")


def test_headings_in_a_text_stay_text() -> None:
    """Records may contain Markdown."""
    assert find_edits(*exported(record(1, "a\n## [9.9 goal] b\n\\## c"))) == []


def test_changes_additions_and_removals_are_found() -> None:
    """Each as one edit, with the revision that it is based on."""
    files, base = exported(record(1, "run a marathon"), record(2, "learn chess"))
    text = files["scratchpad.md"].replace("a marathon", "two marathons")
    files["scratchpad.md"] = text[: text.index("## [2.")] + "## [pet] Scout\n\nA dog.\n"
    assert [
        (edit.record, edit.revision, edit.kind, edit.title, edit.content)
        for edit in find_edits(files, base)
    ] == [
        (1, 3, "goal", "", "run two marathons"),
        (None, 0, "pet", "Scout", "A dog."),
        (2, 3, "goal", "", None),
    ]


def test_a_missing_file_removes_nothing() -> None:
    """It is taken for an accident."""
    files, base = exported(record(1, "run a marathon"))
    del files["scratchpad.md"]
    assert find_edits(files, base) == []


def test_provenance_is_a_comment_below_the_heading() -> None:
    """It is no part of the content, even if the line is deleted."""
    used = replace(record(1, "<!-- made by user today -->\nrun a marathon"), used=4, used_at=NOW)
    files, base = exported(used)
    comment = (
        "<!-- made by rules 2026-05-20 12:00, changed 2026-05-20 12:00, in 4 prompts, last "
        "2026-05-20 12:00 -->"
    )
    text = files["scratchpad.md"]
    assert f"## [1.3 goal]\n{comment}\n\n\\<!-- made" in text
    assert find_edits(files, base) == []
    assert find_edits({"scratchpad.md": text.replace(f"{comment}\n", "")}, base) == []


def test_earlier_revisions_have_their_own_file() -> None:
    """It is read-only."""
    earlier = Revision(2, "scratchpad", "goal", "", "walk a marathon", "model", NOW)
    files = render_folder(7, "Ana", WREN, [record(1, "run a marathon")], {1: [earlier]})
    assert files["history.md"] == (
        "# history\n\n## [1.2 goal]\n<!-- made by model, until 2026-05-20 12:00 -->\n\n"
        "walk a marathon\n"
    )
    assert find_edits(files, msgspec.json.decode(files[BASE], type=ExportedBase)) == []
