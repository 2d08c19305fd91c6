"""The npm package `foremind`: what is in it, its types, and that it loads."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from foremind import __version__
from tests.conftest import ROOT
from tests.contract.committed import JAVASCRIPT, declaration_command

HERE = Path(__file__).parent
CHECK_TYPES = (
    "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--noUnusedLocals",
    "--target", "es2022", "--module", "nodenext",
)  # fmt: skip
Node = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(npm_folder: Path) -> dict[str, Any]:
    """Install what `npm pack` makes next to the tests' packages; return what npm says of it."""
    run = subprocess.run(
        ["npm", "pack", "--json", str(JAVASCRIPT)],
        cwd=npm_folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (packed,) = json.loads(run.stdout)
    target = npm_folder / "node_modules" / "foremind"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    archive = npm_folder / packed["filename"]
    shutil.unpack_archive(archive, npm_folder, filter="data")
    (npm_folder / "package").rename(target)
    result: dict[str, Any] = packed
    return result


def test_the_package_has_one_module_and_its_types(installed: dict[str, Any]) -> None:
    """With licence and description, of the version that the other distributions have."""
    assert {file["path"] for file in installed["files"]} == {
        "LICENSE", "README.md", "package.json",
        "lib/foremind.js", "lib/foremind.d.ts", "lib/protocol.d.ts",
    }  # fmt: skip
    assert (installed["name"], installed["version"]) == ("foremind", __version__)
    description = json.loads((JAVASCRIPT / "package.json").read_text("utf-8"))
    assert not {"dependencies", "peerDependencies", "scripts"} & description.keys()
    assert (JAVASCRIPT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "platform",
    [("--lib", "es2023", "--types", "node"), ("--lib", "es2022,dom", "--typeRoots", "none")],
    ids=["node", "browser"],
)
def test_types_are_checked_in_a_program(
    node: Node, npm_folder: Path, platform: tuple[str, ...]
) -> None:
    """What the sample does is accepted, and each of its marked mistakes is found; in Node without
    the types of browsers, and in browsers without those of Node.
    """
    shutil.copy(HERE / "sample.ts", npm_folder)
    result = node(*CHECK_TYPES, *platform, "sample.ts")
    assert result.returncode == 0, result.stdout
    assert (HERE / "sample.ts").read_text("utf-8").count("@ts-expect-error") == 7


def test_the_types_of_the_client_are_those_of_its_code(node: Node, tmp_path: Path) -> None:
    """`make docs` writes them."""
    result = node(*declaration_command(tmp_path))
    assert result.returncode == 0, result.stdout
    committed = JAVASCRIPT / "lib" / "foremind.d.ts"
    assert (tmp_path / "foremind.d.ts").read_text("utf-8") == committed.read_text("utf-8")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{}", "companion: expected the slug of a companion"),
        ('{ companion: "wren", world: "vale" }', "companion: expected the slug of a companion"),
        ('{ world: "vale" }', "scene: expected the name of a scene"),
        ('{ companion: "wren" }', "url: expected ws://HOST:PORT/v1/ws; "),
        ('{ companion: "wren", url: "ws://127.0.0.1:1" }', "WebSocket: expected a class such as "),
    ],
)
def test_a_missing_option_is_named(node: Node, options: str, message: str) -> None:
    """Node before version 22 has no WebSocket; here that of newer ones is removed."""
    code = 'delete globalThis.WebSocket; import { Foremind } from "foremind"; new Foremind('
    result = node("--input-type=module", "--eval", f"{code}{options})")
    assert f"TypeError: {message}" in result.stderr
