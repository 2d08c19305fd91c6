"""Files of character cards: JSON, PNG, APNG and CHARX, read and written within bounds. Pure.

Sources: the specifications of Character Card V1 and V2
(https://github.com/malfoyslastname/character-card-spec-v2) and V3
(https://github.com/kwaroran/character-card-spec-v3).
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NoReturn, get_args

from foremind.cards.card_fields import ADDED_BY_V2, check_card, is_version_3
from foremind.cards.charx_archive import archive_of, card_json, is_charx
from foremind.cards.png_chunks import SIGNATURE, plain_png, text_chunks
from foremind.domain.errors import InvalidMessage, TooLarge
from foremind.domain.storable_text import check_storable, half_character

CardFormat = Literal["json", "png", "charx"]
FORMATS: tuple[CardFormat, ...] = get_args(CardFormat)
MEDIA_TYPES: Mapping[CardFormat, str] = {
    "json": "application/json",
    "png": "image/png",
    "charx": "application/zip",
}
MAX_FILE_BYTES = 20_000_000
MAX_JSON_BYTES = 2_000_000  # of the card itself
MAX_NESTING = 64
MAX_INTEGER = 2**63 - 1
MAX_NUMBER = 1e22  # up to it, databases and languages agree on what a number is
_MAX_BASE64_CHARS = MAX_JSON_BYTES * 4 // 3 + 100_000  # with line breaks
_KEYWORDS = ("ccv3", "chara")  # the first that is there counts
_SPACE = re.compile(rb"\s+")


def read_card(file: bytes) -> dict[str, Any]:
    """Return the field `data` of a card as it is in the file, checked; a V1 card as one of V2.

    The format is known by the first bytes.

    Raises:
        TooLarge: the file or the card exceeds a bound.
        InvalidMessage: it is damaged, no card, or a field is invalid; names the field.
    """
    if len(file) > MAX_FILE_BYTES:
        raise TooLarge(f"card: expected at most {MAX_FILE_BYTES} bytes", param="card")
    if file.startswith(SIGNATURE):
        raw = _json_in_png(file)
    elif is_charx(file):
        raw = card_json(file, MAX_JSON_BYTES)
    else:
        raw = file
    data = _data_of(_decoded(raw))
    try:
        check_storable(data, "data")
    except InvalidMessage as error:
        raise half_character(raw) or error from None
    check_card(data, "data")
    if not isinstance(data.get("name"), str):
        raise InvalidMessage("data.name: expected the character's name", param="data.name")
    return data


def write_card(data: Mapping[str, Any], card_format: CardFormat) -> bytes:
    """Return a file of a card, of version 3 if it has fields of it, else of version 2.

    A PNG file has a picture of one colour, and a V3 card in it is there as one of V2 too, for
    readers that only know that.
    """
    spec = "chara_card_v3" if is_version_3(data) else "chara_card_v2"
    document = _document(data, spec)
    if card_format == "json":
        return document
    if card_format == "charx":
        return archive_of(document)
    texts = {"chara": base64.b64encode(_document(data, "chara_card_v2"))}
    if spec == "chara_card_v3":
        texts["ccv3"] = base64.b64encode(document)
    return plain_png(texts)


def _document(data: Mapping[str, Any], spec: str) -> bytes:
    version = "3.0" if spec == "chara_card_v3" else "2.0"
    document = {"spec": spec, "spec_version": version, "data": data}
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def _json_in_png(file: bytes) -> bytes:
    texts = text_chunks(file, _KEYWORDS)
    keyword = next((name for name in _KEYWORDS if name in texts), None)
    if keyword is None:
        raise InvalidMessage(
            "card: expected a picture with a text chunk ccv3 or chara", param="card"
        )
    if len(texts[keyword]) > _MAX_BASE64_CHARS:
        raise TooLarge(
            f"{keyword}: expected a card of at most {MAX_JSON_BYTES} bytes", param="card"
        )
    try:
        return base64.b64decode(_SPACE.sub(b"", texts[keyword]), validate=True)
    except binascii.Error:
        raise InvalidMessage(f"{keyword}: expected base64 of JSON", param="card") from None


def _decoded(raw: bytes) -> Any:
    """Decode JSON, and check that a database can give it back as it is."""
    if len(raw) > MAX_JSON_BYTES:
        raise TooLarge(f"card: expected JSON of at most {MAX_JSON_BYTES} bytes", param="card")
    try:
        document = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidMessage(
            "card: expected JSON in UTF-8, or PNG or CHARX", param="card"
        ) from None
    _check_values(document)
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are not JSON


def _check_values(document: object) -> None:
    """Check nesting and numbers, level by level."""
    level: list[object] = [document]
    for _ in range(MAX_NESTING):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, float | int) and not _is_exact(value):
                raise InvalidMessage("card: expected smaller numbers", param="card")
        if not inner:
            return
        level = inner
    raise InvalidMessage(f"card: expected at most {MAX_NESTING} levels of nesting", param="card")


def _is_exact(number: float) -> bool:
    if isinstance(number, int):
        return abs(number) <= MAX_INTEGER
    return math.isfinite(number) and abs(number) < MAX_NUMBER


def _data_of(document: Any) -> dict[str, Any]:
    """Return `data` of a card of any version.

    Raises:
        InvalidMessage: it is not a card.
    """
    if not isinstance(document, dict):
        raise InvalidMessage("card: expected a JSON object", param="card")
    spec = document.get("spec")
    if spec is None and "data" not in document:
        if "name" not in document:
            raise InvalidMessage("card: expected the fields of a character card", param="card")
        return {**ADDED_BY_V2, **document}
    if spec not in (None, "chara_card_v2", "chara_card_v3"):
        raise InvalidMessage("spec: expected chara_card_v2 or chara_card_v3", param="spec")
    data = document.get("data")
    if not isinstance(data, dict):
        raise InvalidMessage("data: expected an object", param="data")
    return data
