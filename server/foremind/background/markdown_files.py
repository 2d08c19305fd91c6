"""Exports a relationship as a folder of Markdown files, and finds the edits made in it. Pure.

Each layer is a file, each record a heading and the text below it:

    ## [12.3 goal] title
    <!-- made by model 2026-05-19 18:02, changed 2026-05-20 12:00, in 4 prompts -->

    text

12 is the record's id, 3 the exported revision. A heading without them adds a record, and a record
whose heading is missing is removed. The line below a heading is read-only, and so is history.md,
which contains the earlier revisions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from foremind.domain.companion import Companion
from foremind.domain.export_file import Id
from foremind.domain.record import Record, RecordLayer, Revision, of_layer

LAYERS: tuple[RecordLayer, ...] = (
    "hot", "profile", "scratchpad", "topics", "episodes", "questions", "vault", "summary",
    "opening",
)  # fmt: skip
BASE = ".foremind.json"
_HEADING = re.compile(r"## (?:\[(?:([0-9]{1,18})\.([0-9]{1,9}) ?)?([^\]]*)\] ?)?(.*)")
_README = """\
What {companion} knows of {user}. Each file is a layer of memory, each heading a record:

    ## [number.revision kind] title
    <!-- who made it, and when -->

Change the text below a heading, its title or its kind; add a heading without a number to add a
record; delete a heading and its text to remove one. Then import the folder again. Records that were
changed on the server in the meantime are merged if a language model is configured; those that
cannot be merged keep the server's version and are listed in conflicts.md. guidelines.md, history.md
and the lines with dates are read-only. Times are UTC.
"""
_PROVENANCE_LINE = re.compile(r"<!-- made by (?:user|developer|model|rules) .*-->")


class RenderedFile(msgspec.Struct, frozen=True):
    """A record as it was exported."""

    revision: int
    layer: RecordLayer
    kind: str
    title: str
    content: str


class ExportedBase(msgspec.Struct, frozen=True):
    """The exported records, the base that edits are compared with."""

    relationship: Id
    records: dict[int, RenderedFile]


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One edit: a record added (no `record`), changed, or removed (no `content`)."""

    layer: RecordLayer
    record: int | None
    revision: int
    kind: str
    title: str
    content: str | None


def render_folder(
    relationship_id: int,
    user_name: str,
    companion: Companion,
    records: Sequence[Record],
    history: Mapping[int, Sequence[Revision]],
) -> dict[str, str]:
    """Return the files of a relationship, by name.

    Args:
        history: the earlier revisions of records, by record id, oldest first.
    """
    files = {"README.md": _README.format(companion=companion.name, user=user_name)}
    for layer in LAYERS:
        blocks = [
            _block(record.id, record, _provenance(record)) for record in of_layer(records, layer)
        ]
        files[f"{layer}.md"] = f"# {layer}\n\n" + "\n".join(blocks)
    files["history.md"] = _history_file(records, history)
    behaviours = "\n".join(
        f"- {behaviour.instruction}" for behaviour in companion.settings.behaviours or ()
    )
    files["guidelines.md"] = f"# guidelines\n\n{companion.persona.strip()}\n\n{behaviours}\n"
    base = ExportedBase(
        str(relationship_id),
        {
            record.id: RenderedFile(
                record.revision, record.layer, record.kind, record.title, record.content
            )
            for record in records
        },
    )
    files[BASE] = msgspec.json.format(msgspec.json.encode(base), indent=1).decode() + "\n"
    return files


def find_edits(files: Mapping[str, str], base: ExportedBase) -> list[FileEdit]:
    """Return the edits made in a folder since it was exported."""
    edits: list[FileEdit] = []
    for layer in LAYERS:
        if f"{layer}.md" not in files:
            continue  # a missing file is taken for an accident: nothing is removed
        seen: set[int] = set()
        for edit in _parse(layer, files[f"{layer}.md"]):
            number = edit.record
            known = None if number is None else base.records.get(number)
            if number is None or known is None:
                edits += [edit] if edit.content else []
                continue
            seen.add(number)
            # Compare with the parsed export: rendering does not keep every character.
            (unchanged,) = _parse(known.layer, _block(number, known))
            if edit.content and replace(edit, revision=known.revision) != unchanged:
                edits.append(replace(edit, revision=known.revision))
        edits += [
            FileEdit(layer, number, known.revision, known.kind, known.title, None)
            for number, known in base.records.items()
            if known.layer == layer and number not in seen
        ]
    return edits


def conflicts_file(edits: Sequence[FileEdit]) -> str:
    """Return the text of conflicts.md: the edits that could not be applied, to be repeated."""
    blocks = [
        f"{edit.layer}: record {edit.record} was changed on the server; the folder said:\n\n"
        f"{edit.title}\n{edit.content or '(removed)'}\n"
        for edit in edits
    ]
    return "# conflicts\n\n" + "\n".join(blocks)


def _history_file(records: Sequence[Record], history: Mapping[int, Sequence[Revision]]) -> str:
    blocks = [
        _block(
            record.id,
            revision,
            f"made by {revision.made_by}, until {_timestamp(revision.replaced_at)}",
        )
        for record in records
        for revision in history.get(record.id, ())
    ]
    return "# history\n\n" + "\n".join(blocks)


def _provenance(record: Record) -> str:
    """Return who made a record, when, and how often it was used."""
    parts = [f"made by {record.made_by} {_timestamp(record.created_at)}"]
    if record.revision > 1:
        parts.append(f"changed {_timestamp(record.updated_at)}")
    if record.used_at is not None:
        parts.append(f"in {record.used} prompts, last {_timestamp(record.used_at)}")
    return ", ".join(parts)


def _timestamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def _block(number: int, record: Record | RenderedFile | Revision, note: str = "") -> str:
    """Render a record as one block; its lines are escaped so that none can begin another."""
    kind = _on_one_line(record.kind).translate({ord("["): "(", ord("]"): ")"})
    heading = f"## [{number}.{record.revision} {kind}".rstrip() + f"] {_on_one_line(record.title)}"
    text = "\n".join(
        f"\\{line}" if line.startswith(("## ", "\\", "<!--")) else line
        for line in re.split(r"\r\n|\r|\n", record.content.strip())
    )
    comment = f"\n<!-- {note} -->" if note else ""
    return f"{heading.rstrip()}{comment}\n\n{text}\n"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _parse(layer: RecordLayer, text: str) -> list[FileEdit]:
    """Return every block of a file as an edit."""
    blocks: list[tuple[re.Match[str], list[str]]] = []
    for line in text.split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            blocks.append((heading, []))
        elif blocks and (blocks[-1][1] or not _PROVENANCE_LINE.fullmatch(line)):
            blocks[-1][1].append(line.removeprefix("\\"))
    return [
        FileEdit(
            layer,
            None if heading[1] is None else int(heading[1]),
            int(heading[2] or 0),
            (heading[3] or "").strip(),
            heading[4].strip(),
            "\n".join(lines).strip(),
        )
        for heading, lines in blocks
    ]
