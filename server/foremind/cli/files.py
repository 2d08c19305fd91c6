"""`foremind files`: a relationship as a folder, to be read and edited with ordinary tools."""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import typer

from foremind.app import Core, core, forgetter_of
from foremind.background import three_way_merge
from foremind.background.manual_edits import ManualEdit, ManualEditor
from foremind.background.markdown_files import (
    BASE,
    ExportedBase,
    FileEdit,
    conflicts_file,
    edits_of,
    folder_of,
)
from foremind.background.record_removal import RecordRemover
from foremind.background.three_way_merge import Ask
from foremind.cli.running import run, say
from foremind.domain.errors import Conflict, InvalidFile, ModelServerError, NotFound
from foremind.domain.policy import policy_for
from foremind.domain.record import NewRecord
from foremind.domain.relationship import Relationship
from foremind.domain.setting_levels import in_force
from foremind.domain.settings import load_settings
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.layout import Message
from foremind.storage.curation_store import CurationStore
from foremind.storage.relationship_store import RelationshipStore

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command()
def write(
    user: str = typer.Argument(help="The user's id."),
    companion: str = typer.Argument(help="The companion's slug."),
    folder: Path = typer.Argument(help="A folder to write into."),
) -> None:
    """Write everything known of a user and a companion into a folder."""

    async def work() -> int:
        async with core(load_settings(), say=say) as built:
            return await _write(built, await _find(built, user, companion), folder)

    print(f"Wrote {run(work())} records to {folder}")


@app.command()
def read(folder: Path = typer.Argument(help="A folder that was written before.")) -> None:
    """Read a folder back: what was changed in it is changed in the relationship."""
    try:
        base = msgspec.json.decode((folder / BASE).read_bytes(), type=ExportedBase)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidFile(f"{folder}: expected a folder that was written here: {error}") from None
    files = {each.name: _text_of(each) for each in folder.glob("*.md")}
    edits = edits_of(files, base)
    relationship_id = int(base.relationship)

    async def work() -> list[FileEdit]:
        async with core(load_settings(), say=say) as built:
            relationship = await RelationshipStore(built.database).any(relationship_id)
            conflicts = await _apply(built, relationship, edits, base)
            await _write(built, relationship, folder)
            await CurationStore(built.database).make_due(relationship_id, built.clock.now())
            return conflicts

    conflicts = run(work())
    path = folder / "conflicts.md"
    if conflicts:
        path.write_text(conflicts_file(conflicts), "utf-8")
    else:
        path.unlink(missing_ok=True)
    print(f"Made {len(edits) - len(conflicts)} changes, {len(conflicts)} conflicts")
    raise typer.Exit(1 if conflicts else 0)


async def _find(built: Core, user: str, companion: str) -> Relationship:
    for each in await RelationshipStore(built.database).of_user(user):
        if each.companion == companion:
            return each
    raise NotFound(f"There is no relationship of {user!r} with {companion!r}.", param="user")


async def _write(built: Core, relationship: Relationship, folder: Path) -> int:
    companion = await built.companions.find(relationship.companion)
    now = built.clock.now()
    await built.records.note(relationship.id, _operator(), "read", "files", now)
    records = await built.records.all(relationship.id)
    history = await built.records.history(relationship.id)
    files = folder_of(relationship.id, relationship.user_name, companion, records, history)
    await asyncio.to_thread(_store, folder, files)
    return len(records)


def _operator() -> str:
    """Return who works at the command line, as the audit trail names them."""
    try:
        return f"operator {getpass.getuser()}"
    except (KeyError, OSError):  # an account without a name, as in a container
        return f"operator {os.getuid()}"


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{file}: expected UTF-8: {error}") from None


def _store(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")


async def _apply(
    built: Core, relationship: Relationship, edits: list[FileEdit], base: ExportedBase
) -> list[FileEdit]:
    """Make edits one by one; return those that the server's own changes contradict."""
    editor = ManualEditor(built.records, built.embedder, built.clock)
    conflicts = []
    async with _asking(built, relationship) as ask:
        for edit in edits:
            try:
                await _make(editor, built, relationship.id, edit)
            except (Conflict, NotFound):
                if not await _merge(editor, built, relationship.id, edit, base, ask):
                    conflicts.append(edit)
    return conflicts


async def _merge(
    editor: ManualEditor,
    built: Core,
    relationship_id: int,
    edit: FileEdit,
    base: ExportedBase,
    ask: Ask | None,
) -> bool:
    """Make an edit and the server's own change one; False where that cannot be done."""
    before = None if edit.record is None else base.records.get(edit.record)
    if ask is None or before is None or edit.record is None or edit.content is None:
        return False
    ours = three_way_merge.RecordVersion(edit.kind, edit.title, edit.content)
    try:
        present = await built.records.find(relationship_id, edit.record)
        theirs = three_way_merge.RecordVersion(present.kind, present.title, present.content)
        both = await three_way_merge.merged(
            three_way_merge.RecordVersion(before.kind, before.title, before.content),
            ours,
            theirs,
            ask,
        )
        if both is None:
            return False
        change = ManualEdit(both.content, both.title, both.kind, None, present.revision)
        await editor.change(relationship_id, _operator(), edit.record, change, "developer")
    except (Conflict, NotFound):
        return False
    except ModelServerError as error:
        say(f"Record {edit.record} could not be merged: {error.message}")
        return False
    return True


@asynccontextmanager
async def _asking(built: Core, relationship: Relationship) -> AsyncIterator[Ask | None]:
    """Yield what asks the relationship's language model; None where none is configured."""
    companion = await built.companions.find(relationship.companion)
    own = in_force(companion.settings, relationship.settings, built.settings)
    voices = ChatModels(built.settings)
    try:
        server = voices.server_of(policy_for(own, built.settings).voice)
        if server is None:
            yield None
            return
        # The library takes over a second to import, and without a model nobody needs it.
        from foremind.llm.structured_output import ask  # noqa: PLC0415

        async def asked(messages: list[Message]) -> three_way_merge.MergeResult:
            answer = await ask(
                server, messages, three_way_merge.MergeResult, three_way_merge.MERGED_TOKENS
            )
            # Of a text that was cut off the rest would be lost.
            return three_way_merge.MergeResult() if answer.cut_off else answer.value

        yield asked
    finally:
        await voices.close()


async def _make(editor: ManualEditor, built: Core, relationship_id: int, edit: FileEdit) -> None:
    if edit.record is None:
        record = NewRecord(
            layer=edit.layer,
            content=edit.content or "",
            made_by="developer",
            title=edit.title,
            kind=edit.kind,
        )
        await editor.write(relationship_id, _operator(), record)
    elif edit.content is None:
        present = await built.records.find(relationship_id, edit.record)
        if present.revision != edit.revision:
            raise Conflict("The record was changed meanwhile.", param="revision")
        remover = RecordRemover(built.records, CurationStore(built.database), forgetter_of(built))
        await remover.remove(relationship_id, _operator(), edit.record)
    else:
        change = ManualEdit(edit.content, edit.title, edit.kind, None, edit.revision)
        await editor.change(relationship_id, _operator(), edit.record, change, "developer")
