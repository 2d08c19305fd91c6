"""Files of cards: every version and format is read, what is hostile or broken is refused."""

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.cards import card_file
from foremind.cards.card_file import FORMATS, CardFormat, read_card, write_card
from foremind.domain.errors import InvalidMessage, TooLarge
from tests.unit.cards.sample_cards import V1, V2, V3, charx, chunk, document, png, text_chunk

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-card_file.MAX_INTEGER, card_file.MAX_INTEGER)
    | st.floats(-1e21, 1e21)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(("data", "version"), [(V2, 2), (V3, 3)], ids=["V2", "V3"])
@pytest.mark.parametrize(
    "pack",
    [
        lambda card: card,
        lambda card: b"\xef\xbb\xbf" + card,  # a byte order mark
        lambda card: png(text_chunk("chara", card)),
        lambda card: png(text_chunk("Chara", card), chunk(b"acTL", bytes(8))),  # an animation
        lambda card: png(text_chunk("chara", document(V1)), text_chunk("ccv3", card)),
        lambda card: charx({"assets/icon/main.png": png(), "card.json": card}),
    ],
    ids=["json", "bom", "png", "apng", "ccv3 first", "charx"],
)
def test_every_version_and_format_is_read(data: dict[str, Any], version: int, pack: Any) -> None:
    """And `data` is exactly what was in the file, unknown fields included."""
    assert read_card(pack(document(data, version))) == data


def test_a_card_of_version_1_becomes_one_of_version_2() -> None:
    """Its fields are data's, also those that V1 does not name; what V2 requires is added."""
    card = read_card(json.dumps(V1 | {"metadata": {"tool": "x"}}).encode())
    assert card == card | V1 | {"metadata": {"tool": "x"}}
    assert set(V2) - set(card) == {"character_book", "an unknown field"}


@pytest.mark.parametrize("card_format", FORMATS)
@given(data=st.dictionaries(_TEXTS, _JSON, max_size=5), extensions=st.dictionaries(_TEXTS, _JSON))
def test_what_is_written_is_read_again(
    card_format: CardFormat, data: dict[str, Any], extensions: dict[str, Any]
) -> None:
    """Equal, whatever fields there are."""
    for card in (V2, V3):
        whole = data | card | {"extensions": extensions}
        assert read_card(write_card(whole, card_format)) == whole


def test_a_picture_has_the_card_for_older_readers_too() -> None:
    """A V3 card under both keywords, a V2 card under its own."""
    assert b"ccv3\0" in write_card(V3, "png")
    assert b"chara\0" in write_card(V3, "png")
    assert b"ccv3\0" not in write_card(V2, "png")
    assert json.loads(write_card(V2, "json"))["spec"] == "chara_card_v2"
    assert json.loads(write_card(V3, "json"))["spec"] == "chara_card_v3"


def nested(levels: int) -> bytes:
    """A card whose extensions are nested."""
    return document(V2).replace(b'{"depth_prompt"', b'{"x":' + b"[" * levels + b"]" * levels
                                + b',"depth_prompt"')  # fmt: skip


@pytest.mark.parametrize(
    ("file", "param"),
    [
        (b"", "card"),
        (b"[]", "card"),
        (b"{}", "card"),
        (b"\xff\xfe{}", "card"),
        (b'{"name": NaN}', "card"),
        (b'{"name": 1', "card"),
        (b"[" * 100_000, "card"),
        (nested(card_file.MAX_NESTING), "card"),
        (b'{"spec": "chara_card_v4", "data": {"name": "x"}}', "spec"),
        (b'{"spec": "chara_card_v2"}', "data"),
        (b'{"spec": "chara_card_v2", "data": []}', "data"),
        (b'{"spec": "chara_card_v2", "data": {"description": "x"}}', "data.name"),
        (document(V2 | {"name": None}), "data.name"),
        (document(V2 | {"name": "  "}), "data.name"),
        (document(V2 | {"name": "x" * 201}), "data.name"),
        (document(V2 | {"nickname": ["x"]}), "data.nickname"),
        (document(V2 | {"description": 1}), "data.description"),
        (document(V2 | {"first_mes": "x" * 100_001}), "data.first_mes"),
        (document(V2 | {"alternate_greetings": "x"}), "data.alternate_greetings"),
        (document(V2 | {"alternate_greetings": ["x", 1]}), "data.alternate_greetings[1]"),
        (document(V2 | {"character_book": []}), "data.character_book"),
        (document(V2 | {"tags": ["a\0b"]}), "data.tags[0]"),
        (document(V2 | {"tags": ["\ud83d"]}), "data.tags[0]"),
        (document(V2 | {"extensions": {"n": 2**63}}), "card"),
        (document(V2 | {"extensions": {"n": 1e22}}), "card"),
        (document(V2 | {"extensions": {"n": 1}}).replace(b'"n": 1', b'"n": 1e999'), "card"),
        (document(V2).replace(b"0.1", b"9" * 5000), "card"),
        (png(), "card"),
        (png(chunk(b"tEXt", b"chara\0????")), "card"),
        (png(chunk(b"tEXt", b"chara\0" + base64.b64encode(b"{}"))), "card"),
        (png(chunk(b"zTXt", b"chara\0\0")), "card"),
        (charx({"card.json": b"{}"}), "card"),
    ],
)  # fmt: skip
def test_what_is_no_card_is_refused(file: bytes, param: str) -> None:
    """By the name of the field."""
    with pytest.raises(InvalidMessage) as refused:
        read_card(file)
    assert refused.value.param == param
    assert len(refused.value.message) < 300


def test_half_characters_are_named_as_such() -> None:
    """As in other texts."""
    with pytest.raises(InvalidMessage, match="half of one"):
        read_card(document(V2 | {"tags": ["\ud83d"]}))


@pytest.mark.parametrize(
    "pack",
    [
        lambda card: card,
        lambda card: png(text_chunk("chara", card)),
    ],
)
def test_large_cards_are_refused(pack: Any) -> None:
    """Before they are decoded."""
    card = document(V2 | {"tags": ["x" * card_file.MAX_JSON_BYTES]})
    with pytest.raises(TooLarge):
        read_card(pack(card))
    with pytest.raises(TooLarge):
        read_card(bytes(card_file.MAX_FILE_BYTES + 1))


def test_numbers_within_the_bounds_survive() -> None:
    """What is refused is only what a database or another language would change."""
    numbers = [card_file.MAX_INTEGER, -card_file.MAX_INTEGER, 9.9e21, 5e-324, 0.1, math.pi]
    card = V2 | {"extensions": {"numbers": numbers}}
    assert read_card(document(card)) == card
