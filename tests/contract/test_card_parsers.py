"""Two parsers of others read the cards that Foremind gives back, and Foremind reads theirs."""

import base64
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from PIL import Image

from foremind.cards.card_fields import card_of
from foremind.cards.card_file import read_card, write_card
from foremind.domain.companion import Companion
from foremind.domain.settings.settings import CompanionSettings
from tests.unit.cards.sample_cards import V1, V2, V3

WREN = Companion(1, "wren", "Wren", "Hello.", "You are Wren.", CompanionSettings(), 1)


def test_two_parsers_read_what_is_written(
    node: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    """As the version that it is, every field that they know as it was given."""
    cards = {
        "v1": read_card(json.dumps(V1).encode()).data,
        "v2": V2,
        "v3": V3,
        "made": card_of(WREN),
    }
    files = {
        f"{name} {card_format}": document
        for name, card in cards.items()
        for card_format, document in written(card).items()
    }
    paths = []
    for number, document in enumerate(files.values()):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_bytes(document)
    result = node("cards.mjs", *map(str, paths))
    assert result.returncode == 0, result.stdout + result.stderr
    for name, line in zip(files, result.stdout.splitlines(), strict=True):
        read = json.loads(line)
        data = cards[name.split()[0]]
        is_v3 = name.startswith("v3") and not name.endswith("chara")
        assert read["version"] == ("v3" if is_v3 else "v2"), name
        if not is_v3:
            assert all(data[field] == value for field, value in known(read["v2"]).items()), name
        assert (
            known(read["v3"]).items()
            >= {
                field: data[field]
                for field in V1 | {"system_prompt": "", "alternate_greetings": []}
            }.items()
        )
        assert known(read_card(json.dumps(read["v3"]).encode()).data) == known(read["v3"]["data"])


def known(card: Any) -> dict[str, Any]:
    """`data` of a card without its lorebook, of which a parser keeps only what it knows."""
    return {
        field: value for field, value in card.get("data", card).items() if field != "character_book"
    }


def written(card: dict[str, Any]) -> dict[str, bytes]:
    """The JSON in each format, taken out by readers other than Foremind's."""
    documents = {"json": write_card(card, "json")}
    with zipfile.ZipFile(io.BytesIO(write_card(card, "charx"))) as archive:
        documents["charx"] = archive.read("card.json")
    with Image.open(io.BytesIO(write_card(card, "png"))) as picture:
        picture.load()
        for keyword in ("chara", "ccv3"):
            if keyword in picture.info:
                documents[keyword] = base64.b64decode(picture.info[keyword])
    return documents
