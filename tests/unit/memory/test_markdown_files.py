"""Markdown export: it parses back, and only changed records are edits."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidFile
from foremind.domain.record import NO_DETAILS, Record, RecordLayer, Revision
from foremind.domain.settings.settings import CompanionSettings
from foremind.memory import markdown_files
from foremind.memory.markdown_files import (
    BASE,
    LAYERS,
    ExportedBase,
    FileEdit,
    changed_files,
    render_folder,
)

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
WREN = Companion(1, "wren", "Wren", "", "You are Wren.", CompanionSettings(), 1)
# Any text, including what could be mistaken for a heading or a line break.
TEXT = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")),
        st.sampled_from(
            ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "## ", "## [2.3 goal] ",
             "## [planted] ", "<!-- made by user -->", "##\t", "### [2.3", "- [1.3 goal]",
             "[", "]", "\\", "\\## ", "\\\\## ", "\\<!--", " ", "# ", "1" * 5000]
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


def find_edits(files: dict[str, str], base: ExportedBase) -> list[FileEdit]:
    """The edits in a folder, of which every layer is parsed, changed or not."""
    raw = {name: text.encode() for name, text in files.items() if name != BASE}
    unread = {f"{layer}.md": "" for layer in LAYERS}
    return markdown_files.find_edits(
        raw, msgspec.structs.replace(base, digests=base.digests | unread)
    )


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


@given(TEXT, TEXT)
def test_a_changed_text_leaves_title_and_kind_as_they_are(title: str, kind: str) -> None:
    """Also where a heading cannot show all of their characters: "a]b" stands there as "a)b"."""
    for of_title, of_kind in ((title[:300], kind[:300]), ("two  spaces", "a]b")):
        files, base = exported(record(1, "run a marathon", title=of_title, kind=of_kind))
        changed = {name: text.replace("run a mar", "walk a mar") for name, text in files.items()}
        (edit,) = find_edits({"scratchpad.md": changed["scratchpad.md"]}, base)
        assert (edit.title, edit.kind, edit.content) == (of_title, of_kind, "walk a marathon")


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


def test_a_text_is_kept_to_the_character() -> None:
    """Backslashes, tabs and what looks like comments; whatever the editor's line breaks are."""
    text = "\\\\server\\share\n\\alpha\n\t<!-- mine -->\n- [1.3 goal]\n### [2.3\n\x85\u2028é"
    for line_break in ("\n", "\r\n", "\r"):
        files, base = exported(record(1, "run"))
        files["vault.md"] += f"## [a] b\n\n{text}\n"
        raw = {"vault.md": files["vault.md"].replace("\n", line_break).encode("utf-8-sig")}
        (edit,) = markdown_files.find_edits(raw, base)
        assert (edit.content, edit.kind, edit.title, edit.record) == (text, "a", "b", None)
        kept, base = exported(record(1, text))
        assert find_edits(kept, base) == []


def test_another_heading_of_the_only_record_changes_it() -> None:
    """Of layers that have a single record."""
    files, base = exported(record(1, "Ana sails.", "hot", kind=""))
    files["hot.md"] = "# hot\n\n## Ana\n\nAna rows.\n"
    (edit,) = find_edits(files, base)
    assert (edit.record, edit.revision, edit.title, edit.content) == (1, 3, "Ana", "Ana rows.")


NOTES = "# scratchpad\n\n## [1.3 goal]\n\nrun a marathon\n\n## [2.3 goal]\n\nlearn chess\n"
HOT = "# hot\n\n## [3.3]\n\nAna sails.\n"
#: What a person writes into a file, and what the refusal of it names.
REFUSED: list[tuple[str, str | bytes, str]] = [
    ("scratchpad.md", NOTES + "x" * 8001, "scratchpad.md, line 7: .* 8000 characters, got 80"),
    ("scratchpad.md", f"{NOTES}## new\n\n{'x' * 9021}", "line 10: .* 8000 characters, got 9021"),
    ("vault.md", f"# vault\n\n## {'x' * 301}\n\ny", "vault.md, line 3: .* title .* 300 .*301"),
    ("vault.md", f"# vault\n\n## [{'x' * 301}] y\n\nz", "vault.md, line 3: .* kind .* 300 .*301"),
    ("scratchpad.md", NOTES + "a\0b", "scratchpad.md, line 10: .*NUL"),
    ("scratchpad.md", NOTES.replace("chess", "ch\0ess"), "scratchpad.md, line 9: .*NUL"),
    ("vault.md", "# vault\n\n## caf\xe9\n".encode("latin-1"), "vault.md, line 3: expected UTF-8"),
    ("vault.md", "# vault\n\n## x\n\ny".encode("utf-16"), "vault.md, line 1: expected UTF-8"),
    ("vault.md", b"\x89PNG\r\n\x1a\n\0\xff", "vault.md, line 1: expected UTF-8"),
    ("scratchpad.md", "", "scratchpad.md, line 1: expected its records"),
    ("scratchpad.md", " \n\n", "scratchpad.md, line 1: expected its records"),
    ("scratchpad.md", NOTES.replace("learn chess", ""), "line 7: expected a text below"),
    ("vault.md", "# vault\n\n## The code is 4711\n", "vault.md, line 3: expected a text below"),
    ("vault.md", "# vault\n\nThe code is 4711\n", "vault.md, line 3: expected a heading"),
    ("vault.md", "# My pins\n", "vault.md, line 1: expected a heading"),
    ("scratchpad.md", "Hi\n" + NOTES, "scratchpad.md, line 1: expected a heading"),
    ("scratchpad.md", NOTES.replace("## [2", "### [2"), r"line 7: .*`## \[2\.1 kind\] title`"),
    ("scratchpad.md", NOTES.replace("## [2", "[2"), r"line 7: .*`## \[2\.1 kind\] title`"),
    (
        "scratchpad.md",
        NOTES.replace("[2.3", "[9.3"),
        "line 7: expected a record of this file, not 9",
    ),
    ("scratchpad.md", NOTES.replace("[2.3", "[1.3"), "line 7: expected record 1 once"),
    ("scratchpad.md", NOTES + NOTES[13:42], "line 11: expected record 1 once"),
    (
        "vault.md",
        "# vault\n\n## [1.3 goal]\n\nrun a marathon\n",
        "line 3: expected a record of this",
    ),
    ("hot.md", HOT + "\n## More\n\nAna rows.\n", "hot.md, line 7: expected one heading"),
    ("guidelines.md", "# guidelines\n\nBe kind.\n", "guidelines.md: is read-only"),
    ("history.md", "", "history.md: is read-only"),
    ("README.md", "mine", "README.md: is read-only"),
    ("conflicts.md", "mine", "conflicts.md: is read-only"),
    ("ideas.md", "# ideas\n", "ideas.md: expected only the files that were written here"),
    ("vault copy.md", "# vault\n", "vault copy.md: expected only"),
    ("Vault.md", "# vault\n", "Vault.md: expected only"),
    ("vault", "# vault\n", "vault: expected only"),
    ("vault.txt", "# vault\n", "vault.txt: expected only"),
    ("photo.png", b"\x89PNG", "photo.png: expected only"),
]


@pytest.mark.parametrize(("name", "written", "named"), REFUSED)
def test_what_cannot_be_kept_whole_is_refused_by_name(
    name: str, written: str | bytes, named: str
) -> None:
    """With the line, and the limit where there is one; nothing else is read then."""
    texts, base = exported(
        record(1, "run a marathon"),
        record(2, "learn chess"),
        record(3, "Ana sails.", "hot", kind=""),
    )
    files = {name: text.encode() for name, text in texts.items() if name != BASE}
    assert markdown_files.find_edits(files, base) == []
    files["topics.md"] += b"## [] Sailing\n\nAna sails.\n"
    assert len(markdown_files.find_edits(files, base)) == 1
    files[name] = written if isinstance(written, bytes) else written.encode()
    with pytest.raises(InvalidFile, match=named) as refused:
        markdown_files.find_edits(files, base)
    assert "\n" not in refused.value.message
    assert name in changed_files(files, base)


def test_all_that_is_refused_is_named_at_once() -> None:
    """So that it can be mended in one go."""
    _, base = exported(record(1, "run a marathon"))
    files = {name: written if isinstance(written, bytes) else written.encode()
             for name, written, _ in REFUSED}  # fmt: skip
    with pytest.raises(InvalidFile) as refused:
        markdown_files.find_edits(files, base)
    named = {re.split("[,:]", problem)[0] for problem in refused.value.message.splitlines()}
    assert named == files.keys()
