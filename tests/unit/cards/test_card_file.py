"""Files of cards: every version and format is read, what is wrong in them is mended."""

import base64
import json
import math
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.cards import card_file
from foremind.cards.card_fields import companion_of
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
    assert read_card(pack(document(data, version))) == (data, [])


def test_a_card_of_version_1_becomes_one_of_version_2() -> None:
    """Its fields are data's, also those that V1 does not name; what V2 requires is added."""
    card = read_card(json.dumps(V1 | {"metadata": {"tool": "x"}}).encode()).data
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
        assert read_card(write_card(whole, card_format)) == (whole, [])


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
        (b'{"name": NaN}', "data.name"),
        (b'{"name": 1', "card"),
        (b"[" * 100_000, "card"),
        (nested(card_file.MAX_NESTING), "card"),
        (b'{"spec": "lorebook_v3", "data": {"entries": 3}}', "card"),
        (b'{"spec": "chara_card_v2"}', "card"),
        (b'{"spec": "chara_card_v2", "data": []}', "card"),
        (b'{"spec": "chara_card_v2", "data": {"description": "x"}}', "data.name"),
        (document(V2 | {"name": None}), "data.name"),
        (document(V2 | {"name": "  "}), "data.name"),
        (document(V2 | {"name": "x" * 201}), "data.name"),
        (document(V2 | {"first_mes": "x" * 100_001}), "data.first_mes"),
        (document(V2 | {"alternate_greetings": ["x", "x" * 100_001]}),
         "data.alternate_greetings[1]"),
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


@pytest.mark.parametrize(
    ("file", "is_lorebook"),
    [
        (b'{"entries": {"0": {"uid": 0, "key": ["x"]}}}', True),
        (b'{"name": "World", "description": "x", "entries": []}', True),
        (b'{"spec": "lorebook_v3", "data": {"entries": []}}', True),
        (b'{"type": "risu", "ver": 1, "data": [{"key": "x", "content": "y"}]}', True),
        (b'{"type": "risu", "name": "Mara", "data": null}', False),
        (b'{"name": "Mara", "entries": 3}', False),
        (b'{"name": "Mara", "first_mes": "Hi", "entries": []}', False),
        (document(V2), False),
    ],
)
def test_a_lorebook_by_itself_is_known_by_its_entries(file: bytes, is_lorebook: bool) -> None:
    """And by having nothing of a character."""
    card = read_card(file)
    assert card.is_lorebook is is_lorebook
    assert is_lorebook or "name" in card.data


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        ({"alternate_greetings": "Again you?"}, {"alternate_greetings": ["Again you?"]}),
        ({"alternate_greetings": ["x", 1, None, {"mes": "y"}]},
         {"alternate_greetings": ["x", "1", "y"]}),
        ({"alternate_greetings": {"0": "x", "1": "y"}}, {"alternate_greetings": ["x", "y"]}),
        ({"group_only_greetings": ""}, {"group_only_greetings": []}),
        ({"tags": "sea, light"}, {"tags": ["sea", "light"]}),
        ({"mes_example": ["{{user}}: a", "<START>\n{{user}}: b"]},
         {"mes_example": "<START>\n{{user}}: a\n<START>\n{{user}}: b"}),
        ({"description": ["Keeps a lighthouse.", "Hates fog."]},
         {"description": "Keeps a lighthouse.\nHates fog."}),
        ({"personality": 5}, {"personality": "5"}),
        ({"scenario": False}, {"scenario": ""}),
        ({"creator_notes": {"en": "x"}}, {"creator_notes": "x"}),
        ({"nickname": ["Mar"]}, {"nickname": "Mar"}),
        ({"name": ["Mara"]}, {"name": "Mara"}),
        ({"name": ""}, {"name": "wren"}),
        ({"name": " ", "nickname": "Mar"}, {"name": "Mar"}),
        ({"character_book": []}, {"character_book": None}),
        ({"character_book": "none"}, {"character_book": None}),
        ({"character_book": [{"keys": ["a"], "content": "b"}]},
         {"character_book": {"entries": [{"keys": ["a"], "content": "b"}]}}),
        ({"extensions": []}, {"extensions": {}}),
        ({"tags": ["a\0b", "\ud83d", "\ud83d\uddfc"]}, {"tags": ["ab", "", "🗼"]}),
        ({"first_mes": "Fog\ude00."}, {"first_mes": "Fog."}),
        ({"extensions": {"n": 2**63, "m": 1e22, "o": float("nan"), "p": 1}},
         {"extensions": {"n": None, "m": None, "o": None, "p": 1}}),
        ({"extensions": {"n": 10**25}}, {"extensions": {"n": None}}),
    ],
    ids=str,
)  # fmt: skip
def test_a_field_is_mended(given: dict[str, Any], mended: dict[str, Any]) -> None:
    """And said to be; the others are as they came."""
    base = {name: value for name, value in V3.items() if name not in {"nickname", *given}}
    card = read_card(document(base | given), slug="wren")
    assert card.data == base | given | mended
    assert {notice.field.partition("[")[0].partition(".")[0] for notice in card.notices} == set(
        mended
    )
    companion_of(card.data)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (document(V2).decode().encode("utf-16"), set()),
        (document(V2).decode().encode("utf-16-le"), set()),
        (b"\xfe\xff" + document(V2).decode().encode("utf-16-be"), set()),
        (document(V2).replace(b'"dry, patient"', b'"dry,\npatient"'), set()),
        (document(V2).replace(b"dry, patient", b"dry, p\xe2tient"), {"card"}),
        (document(V2).replace(b"chara_card_v2", b"chara_card_v4"), {"card"}),
        (document(V2).replace(b'"spec": "chara_card_v2", ', b""), set()),
        (json.dumps({"spec": "chara_card_v2", "spec_version": "2.0", **V2}).encode(), {"card"}),
        (json.dumps({"name": "Mara", "data": None, **V2}).encode(), {"card"}),
        (document(V2 | {"name": ""}).replace(b'{"spec"', b'{"name": "Mara", "spec"'), {"name"}),
        (png(chunk(b"tEXt", b"chara\0" + base64.b64encode(document(V2)), crc=0)), {"card"}),
        (png(chunk(b"abCd", b"", crc=1), text_chunk("chara", document(V2))), {"card"}),
        (png(text_chunk("chara", document(V2)))[:-12], {"card"}),
        (png(text_chunk("chara", document(V2)))[:-14], {"card"}),
        (png(chunk(b"tEXt", b"chara\0" + document(V2))), set()),
        (png(chunk(b"tEXt", b"chara\0" + base64.urlsafe_b64encode(document(V2)).rstrip(b"="))),
         set()),
        (png(chunk(b"zTXt", b"chara\0\0" + zlib.compress(base64.b64encode(document(V2))))), set()),
        (png(chunk(b"iTXt", b"Chara\0\0\0\0\0" + base64.b64encode(document(V2)))), set()),
        (png(chunk(b"iTXt", b"chara\0\0\0en\0x\0" + document(V2))), set()),
        (png(chunk(b"iTXt", b"ccv3\0\1\0\0\0" + zlib.compress(document(V2)))), set()),
        (png(text_chunk("ccv3", b'{"spec": "chara_ca'), text_chunk("chara", document(V2))),
         {"card"}),
        (png(chunk(b"tEXt", b"ccv3\0???"), text_chunk("chara", document(V2))), {"card"}),
        (png(text_chunk("ccv3", b"{}"), text_chunk("chara", document(V2))), {"card"}),
        (png(text_chunk("chara", b"null"), text_chunk("chara", document(V2))), {"card"}),
    ],
)  # fmt: skip
def test_a_file_is_read_as_far_as_it_goes(file: bytes, said: set[str]) -> None:
    """A damaged one, and one in another encoding; what had to be mended is said."""
    card = read_card(file)
    assert card.data["name"] == "Mara"
    assert card.data["description"] == V2["description"]
    assert card.data["character_book"] == V2["character_book"]
    assert {notice.field for notice in card.notices} == said


@pytest.mark.parametrize(
    "older",
    [
        # As SillyTavern 1.12 reads them: TavernAI's and Pygmalion's, its own first ones.
        {"char_name": "Mara", "char_persona": "Keeps a lighthouse.", "world_scenario": "A storm.",
         "char_greeting": "You are wet.", "example_dialogue": "<START>\n{{user}}: Hi"},
        {"name": "Mara", "description": "Keeps a lighthouse.", "scenario": "A storm.",
         "first_mes": "You are wet.", "mes_example": "<START>\n{{user}}: Hi", "personality": "",
         "creatorcomment": "x", "avatar": "none", "talkativeness": "0.5", "fav": False},
        {"char_name": "Mara", "name": "", "description": "", "char_persona": "Keeps a lighthouse.",
         "scenario": "A storm.", "char_greeting": "You are wet.",
         "mes_example": "<START>\n{{user}}: Hi"},
        # text-generation-webui's.
        {"name": "Mara", "context": "Keeps a lighthouse.", "greeting": "You are wet.",
         "scenario": "A storm.", "example_dialogue": "<START>\n{{user}}: Hi"},
    ],
)  # fmt: skip
def test_older_names_of_fields_are_read(older: dict[str, Any]) -> None:
    """As those of version 1."""
    data = read_card(png(text_chunk("chara", json.dumps(older).encode()))).data
    texts = {"name": "Mara", "description": "Keeps a lighthouse.", "scenario": "A storm.",
             "first_mes": "You are wet.", "mes_example": "<START>\n{{user}}: Hi"}  # fmt: skip
    assert data == data | texts
    assert read_card(json.dumps(older).encode()).data == data


@pytest.mark.parametrize(
    ("persona", "description"),
    [
        ({"kind": "text", "attributes": {"text": ["Keeps a lighthouse."]}}, "Keeps a lighthouse."),
        (
            {"kind": "wpp", "attributes": {"species": ["human"], "mind": ["dry", "patient"]}},
            "species: human\nmind: dry, patient",
        ),
        ({"kind": "text"}, ""),
    ],
)
def test_a_character_of_agnai_is_read(persona: dict[str, Any], description: str) -> None:
    """Its persona is the description, and what it calls so is for readers."""
    entry = {"name": "Cape", "entry": "Steep.", "keywords": ["cape"], "weight": 1, "enabled": True}
    character = {
        "kind": "character", "name": "Mara", "description": "By me.", "persona": persona,
        "sampleChat": "{{user}}: Hi", "greeting": "You are wet.", "scenario": "A storm.",
        "alternateGreetings": ["Again?"], "systemPrompt": "Be Mara.",
        "postHistoryInstructions": "Stay dry.", "characterVersion": "2",
        "characterBook": {"kind": "memory", "name": "Coast", "entries": [entry]},
    }  # fmt: skip
    data = read_card(json.dumps(character).encode()).data
    expected = {
        "name": "Mara", "description": description, "creator_notes": "By me.",
        "mes_example": "{{user}}: Hi", "first_mes": "You are wet.", "scenario": "A storm.",
        "alternate_greetings": ["Again?"], "system_prompt": "Be Mara.",
        "post_history_instructions": "Stay dry.", "character_version": "2",
        "character_book": character["characterBook"],
    }  # fmt: skip
    assert data == data | expected


def test_what_is_compressed_is_unpacked_within_bounds() -> None:
    """A bomb is refused."""
    bomb = zlib.compress(bytes(100_000_000))
    with pytest.raises(TooLarge):
        read_card(png(chunk(b"zTXt", b"chara\0\0" + bomb)))


def test_a_list_of_notices_is_bounded() -> None:
    """Of a card that is wrong everywhere."""
    card = read_card(document(V2 | {"extensions": {"x": ["\0"] * 5_000}}))
    assert len(card.notices) == card_file.MAX_NOTICES


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
    assert read_card(document(card)) == (card, [])
