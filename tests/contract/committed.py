"""Writes the contracts in docs/, and what clients have of them.

`make docs` calls `python -m tests.contract.committed`; a test finds any file that differs from what
the server says.
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from foremind.api.openapi import openapi
from foremind.domain.settings.setting_levels import TURN_SETTINGS
from foremind.domain.settings.settings import CompanionSettings
from foremind.gateway.protocol.asyncapi import asyncapi
from tests.contract.csharp_types import csharp
from tests.contract.gdscript_types import gdscript
from tests.contract.typescript_types import declarations, settings_declaration

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "docs" / "contracts"
JAVASCRIPT = ROOT / "clients" / "javascript"
GODOT = ROOT / "clients" / "godot"
UNITY = ROOT / "clients" / "unity"
_NPM_FILES = ("package.json", "package-lock.json", ".npmrc", "validate.mjs", "cards.mjs")


def generated() -> dict[Path, str]:
    """Return the content of each file that is made of the contracts, the contracts included."""
    socket = json.loads(json.dumps(asyncapi()))
    return {
        CONTRACTS / "asyncapi.json": _json(socket),
        CONTRACTS / "openapi.json": _json(openapi()),
        JAVASCRIPT / "lib" / "protocol.d.ts": declarations(socket) + _turn_settings(),
        GODOT / "foremind_protocol.gd": gdscript(socket),
        UNITY / "ForemindProtocol.cs": csharp(socket),
    }


def _turn_settings() -> str:
    """Return the TypeScript type of the settings that one turn may have."""
    _, components = msgspec.json.schema_components([CompanionSettings])
    properties = components["CompanionSettings"]["properties"]
    return "\n" + settings_declaration(
        "TurnSettings",
        "The settings that one turn may have, by name; see `docs/settings.md`.",
        {name: properties[name] for name in sorted(TURN_SETTINGS)},
    )


def install_npm_packages(folder: Path) -> None:
    """Install the locked npm packages of the tests into a folder."""
    for name in _NPM_FILES:
        shutil.copy(Path(__file__).parent / name, folder)
    subprocess.run(["npm", "ci"], cwd=folder, check=True, capture_output=True, timeout=300)


def declaration_command(out: Path) -> list[str]:
    """Return node's arguments that declare the JavaScript client's types in a folder."""
    return [
        "node_modules/typescript/bin/tsc", "--declaration", "--emitDeclarationOnly", "--allowJs",
        "--checkJs", "--strict", "--target", "es2022", "--module", "nodenext",
        "--lib", "es2022,dom", "--outDir", str(out),
        str(JAVASCRIPT / "lib" / "foremind.js"),
    ]  # fmt: skip


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every file."""
    CONTRACTS.mkdir(exist_ok=True)
    for path, content in generated().items():
        path.write_text(content, "utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install_npm_packages(folder)
        subprocess.run(["node", *declaration_command(folder / "out")], cwd=folder, check=True)
        shutil.copy(folder / "out" / "foremind.d.ts", JAVASCRIPT / "lib")


if __name__ == "__main__":
    main()
