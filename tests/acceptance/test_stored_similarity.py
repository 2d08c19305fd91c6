"""What is stored is compared by the cosines of two passages, a draft by those of a query."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from foremind_eval.doubles.model_server import Chat
from foremind_models import ConvertedEncoder, Manifest
from foremind_models.download import RECORD, read_record, sha256_of
from foremind_models.registry import PULLED_MANIFEST
from tests.acceptance.test_erasure import memory_id
from tests.acceptance.world import world
from tests.conftest import StartServer

QUESTION = "What am I scared of?"
OPEN_QUESTION = "Let's talk about the broken xylophone of Zarco later"
UNREACHED = {"0.65": 1.1, "0.72": 1.1}


def pulled_as(manifest: Manifest, model: ConvertedEncoder, models: Path) -> None:
    """Put a converted model into a folder as if it had been pulled with another manifest."""
    folder = models / manifest.folder_name
    shutil.copytree(model.folder, folder, copy_function=os.link)
    record = read_record(folder)
    assert record is not None
    for name in (PULLED_MANIFEST, RECORD):  # not those that they are links to
        (folder / name).unlink()
    (folder / PULLED_MANIFEST).write_bytes(msgspec.json.encode(manifest))
    files = record.files | {PULLED_MANIFEST: sha256_of(folder / PULLED_MANIFEST)}
    (folder / RECORD).write_bytes(msgspec.json.encode(replace(record, files=files)))


def _reply(chat: Chat) -> list[str]:
    last = chat["messages"][-1]["content"].rpartition("\n\n")[2]
    return ["The ones with many legs." if "scared" in last else "Mint it is."]


@pytest.mark.parametrize(
    ("of_passages", "questions", "erased"),
    [({}, 1, True), (UNREACHED, 2, False)],
    ids=["as-of-queries", "their-own"],
)
async def test_erasure_and_open_questions_compare_passages(
    start: StartServer,
    model: ConvertedEncoder,
    tmp_path: Path,
    of_passages: dict[str, float],
    questions: int,
    erased: bool,
) -> None:
    """A question that is asked again counts as the same, and a reply about what is erased goes."""
    other = replace(model.manifest, name="other", passage_calibration=of_passages)
    pulled_as(other, model, tmp_path / "models")
    settings = {"embedding_model": "other", "models_path": tmp_path / "models"}
    async with world(start, model=True, **settings) as w:
        assert w.model is not None
        w.model.script.reply = _reply
        await w.talk("I am afraid of spiders", OPEN_QUESTION)
        await w.next_day()
        await w.talk(QUESTION, f"{OPEN_QUESTION} today")
        await w.next_day()
        assert len(await w.records("questions")) == questions
        await w.request("DELETE", f"/memories/{await memory_id(w, 'I am afraid of spiders')}")
        await w.wait_until_idle()
        texts = str((await w.request("GET", "/export"))["turns"])
        assert ("many legs" not in texts) == erased
