"""`foremind files`: a relationship as a folder of Markdown files, to read and edit."""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import typer

from foremind.app.configuration import load_settings
from foremind.app.core import Core, build_eraser, core
from foremind.cli.running import run, say
from foremind.domain.errors import Conflict, InvalidFile, ModelServerError, NotFound, TooLarge
from foremind.domain.policy import policy_for
from foremind.domain.record import NewRecord
from foremind.domain.relationship import Relationship
from foremind.domain.settings.setting_levels import effective_settings
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.layout import Message
from foremind.llm.structured_output import request_answer
from foremind.memory import markdown_files
from foremind.memory.manual_edits import ManualEdit, ManualEditor, RecordRemover
from foremind.memory.markdown_files import (
    BASE,
    CONFLICTS,
    AskModel,
    ExportedBase,
    FileEdit,
    RefusedEdit,
    changed_files,
    find_edits,
    render_folder,
)
from foremind.storage.background_store import BackgroundStore
from foremind.storage.relationship_store import RelationshipStore

app = typer.Typer(
    help="Write a relationship to a folder of Markdown files, and read edits back.",
    no_args_is_help=True,
)


@app.command()
def write(
    user: str = typer.Argument(help="Id of the user."),
    companion: str = typer.Argument(help="Slug of the companion."),
    folder: Path = typer.Argument(help="Folder to write to; created if it does not exist."),
) -> None:
    """Write the records of a user and a companion to a folder.

    Edit the files with any tool, then apply the edits with `foremind files read`. Files that were
    changed since they were written, or by others, are not overwritten.
    """
    _check_nothing_is_lost(folder)

    async def write_files() -> int:
        async with core(load_settings(), say=say) as built:
            return await _write(built, await _find(built, user, companion), folder)

    print(f"Wrote {run(write_files())} records to {folder}")


@app.command()
def read(folder: Path = typer.Argument(help="Folder written by `foremind files write`.")) -> None:
    """Apply the edits made in a folder to its relationship, then write the folder again.

    Edits that contradict changes of the server are listed in conflicts.md; the exit code is then 1.
    What cannot be kept whole is named by its file and line, and nothing is changed then.
    """
    base = _read_base(folder)
    edits = find_edits(_read_files(folder), base)
    relationship_id = int(base.relationship)

    async def apply_edits() -> list[RefusedEdit]:
        async with core(load_settings(), say=say) as built:
            relationship = await RelationshipStore(built.database).find_any(relationship_id)
            refused = await _apply(built, relationship, edits, base)
            await _write(built, relationship, folder, refused)
            await BackgroundStore(built.database).schedule_now(
                relationship_id, built.runtime.clock.now()
            )
            return refused

    conflicts = run(apply_edits())
    print(f"Made {len(edits) - len(conflicts)} changes, {len(conflicts)} conflicts")
    raise typer.Exit(1 if conflicts else 0)


async def _find(built: Core, user: str, companion: str) -> Relationship:
    for relationship in await RelationshipStore(built.database).relationships_of_user(user):
        if relationship.companion == companion:
            return relationship
    raise NotFound(f"There is no relationship of {user!r} with {companion!r}.", param="user")


async def _write(
    built: Core, relationship: Relationship, folder: Path, refused: Sequence[RefusedEdit] = ()
) -> int:
    companion = await built.stores.companions.find(relationship.companion)
    now = built.runtime.clock.now()
    await built.stores.records.add_audit_entry(relationship.id, _operator(), "read", "files", now)
    records = await built.stores.records.all(relationship.id)
    history = await built.stores.records.history(relationship.id)
    files = render_folder(
        relationship.id, relationship.user_name, companion, records, history, refused
    )
    await asyncio.to_thread(_write_files, folder, files)
    return len(records)


def _operator() -> str:
    """Return the name of the command's user for the audit trail."""
    try:
        return f"operator {getpass.getuser()}"
    except (KeyError, OSError):  # the account has no name, as in a container
        return f"operator {os.getuid()}"


def _read_base(folder: Path) -> ExportedBase:
    try:
        return msgspec.json.decode((folder / BASE).read_bytes(), type=ExportedBase)
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise InvalidFile(f"{folder}: expected a folder that was written here: {error}") from None


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by name, but hidden ones and editors' backups."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        try:
            files[path.name] = path.read_bytes()
        except OSError as error:
            raise InvalidFile(f"{path}: expected a file to read: {error.strerror}") from None
    return files


def _check_nothing_is_lost(folder: Path) -> None:
    """Make sure that no file is overwritten that holds what nobody has read back.

    Raises:
        InvalidFile: names the files.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InvalidFile(f"{folder}: expected a folder")
    files = _read_files(folder)
    if not files:
        return
    changed = changed_files(files, _read_base(folder))
    if changed:
        raise InvalidFile(
            f"{folder}: {', '.join(changed)} changed since the folder was written: apply that with "
            "`foremind files read` first, or write to another folder"
        )


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        _write_private(folder / name, text)
    if CONFLICTS not in files:
        (folder / CONFLICTS).unlink(missing_ok=True)


def _write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read: what it tells was told to a companion."""
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(text, "utf-8")


async def _apply(
    built: Core, relationship: Relationship, edits: list[FileEdit], base: ExportedBase
) -> list[RefusedEdit]:
    """Apply edits one by one; return those that conflict with changes of the server or limits."""
    editor = ManualEditor(built.stores.records, built.embedder, built.runtime.clock)
    refused = []
    async with _model_for(built, relationship) as ask:
        for edit in edits:
            try:
                await _apply_edit(editor, built, relationship.id, edit)
            except TooLarge as error:
                refused.append(RefusedEdit(edit, error.message))
            except (Conflict, NotFound):
                if not await _merge(editor, built, relationship.id, edit, base, ask):
                    refused.append(RefusedEdit(edit, "it was changed on the server"))
    return refused


async def _merge(
    editor: ManualEditor,
    built: Core,
    relationship_id: int,
    edit: FileEdit,
    base: ExportedBase,
    ask: AskModel | None,
) -> bool:
    """Merge an edit with the server's change; return False if that is not possible."""
    original = None if edit.record is None else base.records.get(edit.record)
    if ask is None or original is None or edit.record is None or edit.content is None:
        return False
    ours = markdown_files.RecordVersion(edit.kind, edit.title, edit.content)
    try:
        present = await built.stores.records.find(relationship_id, edit.record)
        theirs = markdown_files.RecordVersion(present.kind, present.title, present.content)
        merged = await markdown_files.merge(
            markdown_files.RecordVersion(original.kind, original.title, original.content),
            ours,
            theirs,
            ask,
        )
        if merged is None:
            return False
        change = ManualEdit(merged.content, merged.title, merged.kind, None, present.revision)
        await editor.change(relationship_id, _operator(), edit.record, change, "developer")
    except (Conflict, NotFound):
        return False
    except ModelServerError as error:
        say(f"Record {edit.record} could not be merged: {error.for_operator}")
        return False
    return True


@asynccontextmanager
async def _model_for(built: Core, relationship: Relationship) -> AsyncIterator[AskModel | None]:
    """Yield a function that asks the relationship's language model; None without one."""
    companion = await built.stores.companions.find(relationship.companion)
    settings = effective_settings(companion.settings, relationship.settings, built.runtime.settings)
    chat_models = ChatModels(built.runtime.settings)
    try:
        server = chat_models.model_server_for(
            policy_for(settings, built.runtime.settings).chat_model
        )
        if server is None:
            yield None
            return

        async def ask_model(messages: list[Message]) -> markdown_files.MergeResult:
            answer = await request_answer(
                server, messages, markdown_files.MergeResult, markdown_files.MERGED_TOKENS
            )
            # The end of a truncated text would be lost.
            is_cut = answer.cut_off or answer.corrections["too_long"]
            return markdown_files.MergeResult() if is_cut else answer.value

        yield ask_model
    finally:
        await chat_models.close()


async def _apply_edit(
    editor: ManualEditor, built: Core, relationship_id: int, edit: FileEdit
) -> None:
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
        present = await built.stores.records.find(relationship_id, edit.record)
        if present.revision != edit.revision:
            raise Conflict("The record was changed meanwhile.", param="revision")
        remover = RecordRemover(
            built.stores.records, BackgroundStore(built.database), build_eraser(built)
        )
        await remover.remove(relationship_id, _operator(), edit.record, built.runtime.clock.now())
    else:
        change = ManualEdit(edit.content, edit.title, edit.kind, None, edit.revision)
        await editor.change(relationship_id, _operator(), edit.record, change, "developer")
