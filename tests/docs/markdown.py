"""The documents for users, and their code blocks."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    file: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """The first line, stripped; the tests identify a block by it."""
        return self.text.strip().splitlines()[0].strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.first})"


def documents() -> list[Path]:
    """Return every Markdown file at the root, of each distribution, in docs/ and in deploy/."""
    names = ("server", "evaluation", "models", "transport", "deploy")
    folders = (ROOT, *(ROOT / name for name in names))
    return [path for folder in folders for path in folder.glob("*.md")] + [
        path for folder in ("clients", "docs") for path in (ROOT / folder).glob("**/*.md")
    ]


def blocks() -> list[Block]:
    """Return the code blocks of every document."""
    fenced = []
    for path in sorted(documents()):
        text = path.read_text("utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            fenced.append(Block(str(path.relative_to(ROOT)), line, match[1], match[2]))
    return fenced


def block(file: str, first: str) -> Block:
    """Return the only block of a file whose first line begins with `first`."""
    (match,) = [block for block in blocks() if block.file == file and block.first.startswith(first)]
    return match
