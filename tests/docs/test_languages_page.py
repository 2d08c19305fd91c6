"""docs/languages.md names the fields that a language's file has."""

import re
from dataclasses import fields
from typing import get_args

import pytest

from foremind.text.languages.language_files import (
    RECORD_LABELS,
    InvalidLanguageFile,
    Language,
    LineWords,
    PromptWords,
    RecordWords,
    Script,
    StandInWords,
    parse_language,
)
from tests.conftest import ROOT

SECTION = (
    (ROOT / "docs" / "languages.md").read_text("utf-8").partition("## A language of your own")[2]
)
NAMES = re.findall(r"^\| `(\w+)` \|", SECTION, re.M)


def test_the_table_has_every_field() -> None:
    """And every script."""
    assert {*NAMES} == {field.name for field in fields(Language)}
    of_prompts = re.findall(r"^\| `prompt\.(\w+)` \|", SECTION, re.M)
    assert of_prompts == [field.name for field in fields(PromptWords)]
    of_lines = re.findall(r"^\| `prompt\.lines\.(\w+)` \|", SECTION, re.M)
    assert of_lines == [*LineWords.__struct_fields__]
    of_records = re.findall(r"^\| `prompt\.records\.(\w+)` \|", SECTION, re.M)
    assert of_records == [*RecordWords.__struct_fields__]
    of_stand_in = re.findall(r"^\| `prompt\.stand_in\.(\w+)` \|", SECTION, re.M)
    assert of_stand_in == [*StandInWords.__struct_fields__]
    assert {*re.findall(r"`([\w -]+)`", SECTION.partition("The table `prompt.labels`")[2])} >= (
        RECORD_LABELS
    )
    (row,) = re.findall(r"^\| `script` \| (.*) \|$", SECTION, re.M)
    assert {*re.findall(r"`(\w+)`", row)} == {*get_args(Script)}


def test_the_first_six_are_needed() -> None:
    """Without any of them the file is refused, and it is named; without the others it is read."""
    values = dict.fromkeys(NAMES[:6], "x") | {"code": "xx", "script": "latin"}

    def parse(names: list[str]) -> Language:
        return parse_language("xx.toml", "".join(f'{name} = "{values[name]}"\n' for name in names))

    assert parse(NAMES[:6]).code == "xx"
    for name in NAMES[:6]:
        with pytest.raises(InvalidLanguageFile, match=name):
            parse([other for other in NAMES[:6] if other != name])
