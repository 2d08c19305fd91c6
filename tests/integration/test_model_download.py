"""Models pulled by name, from a hub that answers as the public one does."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from fair_transport import listening
from foremind_eval.doubles.random_model import write_random_model

REVISION = "c0ffee" * 6 + "beef"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a hub with one repository, example/random-768."""
    folder = tmp_path / "hub"
    write_random_model(folder, dimension=768)

    async def info(request: Request) -> Response:
        if request.path_params["name"] != "random-768":
            return JSONResponse({"error": "Repository not found"}, 404)
        files = [path for path in folder.rglob("*") if path.is_file()]
        return JSONResponse(
            {
                "id": "example/random-768",
                "sha": REVISION,
                "cardData": {"license": "mit"},
                "siblings": [{"rfilename": str(path.relative_to(folder))} for path in files],
            }
        )

    async def tree(request: Request) -> Response:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return JSONResponse(
            [
                {
                    "type": "file",
                    "path": str(path.relative_to(folder)),
                    "size": path.stat().st_size,
                    "oid": hashlib.sha1(path.read_bytes()).hexdigest(),
                }
                for path in files
            ]
        )

    async def resolve(request: Request) -> Response:
        path = folder / request.path_params["path"]
        if not path.is_file():
            return Response(status_code=404, headers={"x-error-code": "EntryNotFound"})
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        headers = {"etag": f'"{digest}"', "x-repo-commit": REVISION}
        return FileResponse(path, headers=headers)

    repository = "/example/{name}"
    app = Starlette(
        routes=[
            Route(f"/api/models{repository}", info),
            Route(f"/api/models{repository}/revision/{{revision}}", info),
            Route(f"/api/models{repository}/tree/{{revision}}", tree),
            Route(f"{repository}/resolve/{{revision}}/{{path:path}}", resolve),
        ]
    )
    async with listening(app) as port:
        yield f"http://127.0.0.1:{port}"


async def foremind(hub: str, data_dir: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command line against this hub: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "foremind",
        *arguments,
        env=os.environ
        | {
            "HF_ENDPOINT": hub,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HOME": str(data_dir / "hf"),
            "FOREMIND_MODELS_PATH": str(data_dir / "models"),
            "COLUMNS": "120",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    return process.returncode or 0, out.decode(), error.decode()


async def test_a_model_of_the_hub_is_pulled_by_name_and_pinned(hub: str, tmp_path: Path) -> None:
    """Its revision and hashes hold from then on."""
    code, _, said = await foremind(hub, tmp_path, "models", "pull", "example/random-768")
    assert code == 0, said
    assert "example/random-768 is ready: 768 dimensions" in said
    manifest = json.loads(
        (tmp_path / "models" / "example--random-768" / "manifest.json").read_text()
    )
    assert manifest["sources"] == [
        {"kind": "hub", "repo": "example/random-768", "revision": REVISION}
    ]
    assert (manifest["licence"], manifest["pooling"]) == ("mit", "cls")
    assert all(len(digest) == 64 for digest in manifest["files"].values())
    code, listed, _ = await foremind(hub, tmp_path, "models", "list")
    assert code == 0
    assert "example/random-768" in listed
    # Its prefixes hold, too: others are refused, not ignored.
    pull = ("models", "pull", "example/random-768", "--query-prefix")
    assert (await foremind(hub, tmp_path, *pull, ""))[0] == 0
    code, _, said = await foremind(hub, tmp_path, *pull, "query: ")
    assert code == 1
    assert "prefix for a query '', on which its vectors depend" in " ".join(said.split())
    assert "models/example--random-768 and pull it again" in " ".join(said.split())


async def test_a_shipped_model_has_the_prefixes_it_ships_with(tmp_path: Path) -> None:
    """Given as they are they are taken; others need another name."""
    pull = ("models", "pull", "multilingual-e5-small", "--passage-prefix")
    for prefix, why in (
        ("passage: ", "could not be fetched"),
        ("", "the prefix for a passage 'passage: '"),
    ):
        code, _, said = await foremind("http://127.0.0.1:9", tmp_path, *pull, prefix)
        assert code == 1
        assert why in " ".join(said.split())


async def test_a_name_the_hub_does_not_know_is_a_clear_error(hub: str, tmp_path: Path) -> None:
    """One line, exit code 1."""
    code, _, said = await foremind(hub, tmp_path, "models", "pull", "example/nothing")
    assert code == 1
    assert "The hub has no usable model 'example/nothing'" in said
    assert "Traceback" not in said


async def test_a_hub_that_cannot_be_reached_is_not_a_model_that_does_not_exist(
    tmp_path: Path,
) -> None:
    """What happened, and the way without a hub."""
    unreachable = "http://127.0.0.1:9"
    code, _, said = await foremind(unreachable, tmp_path, "models", "pull", "example/random-768")
    assert code == 1
    assert "The model hub cannot be reached" in said
    assert "no usable model" not in said
    for named in ("config.json", "tokenizer.json", "model.safetensors", "modules.json"):
        assert named in said
    assert "foremind models pull example/random-768 --from FOLDER" in said


async def test_a_shipped_model_that_cannot_be_fetched_says_which_files_to_bring(
    tmp_path: Path,
) -> None:
    """From a folder they are checked by the hashes that are shipped."""
    unreachable = "http://127.0.0.1:9"
    pull = ("models", "pull", "multilingual-e5-small")
    code, _, said = await foremind(unreachable, tmp_path, *pull)
    assert code == 1
    assert "Connection refused" in said
    assert "Retrying" not in said
    assert "https://huggingface.co/intfloat/multilingual-e5-small/tree/614241f6" in said
    assert "foremind models pull multilingual-e5-small --from FOLDER" in said
    folder = tmp_path / "other-files"
    write_random_model(folder, dimension=384)
    code, _, said = await foremind(unreachable, tmp_path, *pull, "--from", str(folder))
    assert code == 1
    assert "config.json has SHA-256" in said
    assert "69137736cab8b8903a07fe8afaafdda25aac55415a12a55d1bffa9f581abf959" in said


async def test_a_shipped_model_has_one_name(hub: str, tmp_path: Path) -> None:
    """By that of its repository it would have no prefixes."""
    code, _, said = await foremind(
        hub, tmp_path, "models", "pull", "intfloat/multilingual-e5-small"
    )
    assert code == 1
    assert "foremind models pull multilingual-e5-small" in said
    code, listed, _ = await foremind(hub, tmp_path, "models", "list")
    assert code == 0
    assert "multilingual-e5-small" in listed


async def test_a_model_of_the_hub_with_a_layer_after_pooling_is_refused(
    hub: str, tmp_path: Path
) -> None:
    """Its vectors would be wrong without that layer."""
    modules = [{"type": "sentence_transformers.models.Dense"}]
    (tmp_path / "hub" / "modules.json").write_text(json.dumps(modules))
    code, _, said = await foremind(hub, tmp_path, "models", "pull", "example/random-768")
    assert code == 1
    assert "got a Dense layer" in said
