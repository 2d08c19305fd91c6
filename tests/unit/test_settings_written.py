"""Settings as operators write them: in the environment, in the file, rightly and wrongly."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

from foremind.cli.main import main
from foremind.domain.companion import CompanionSettings
from foremind.domain.errors import InvalidFile
from foremind.domain.policy import policy_for
from foremind.domain.setting_syntax import unknown_variables
from foremind.domain.settings import SETTINGS_FILE, Settings, load_settings

ROOT = Path(__file__).parents[2]
NAMES = sorted(Settings.model_fields)
SCHEMA = Settings.model_json_schema()["properties"]
LISTS = {
    "allowed_origins": ("http://a,http://b:81", '["http://a", "http://b:81"]'),
    "trusted_proxies": ("10.0.0.1, 10.0.0.2", '["10.0.0.1", "10.0.0.2"]'),
    "host_addresses": ("10.1.0.0/16, ::2", '["10.1.0.0/16", "::2/128"]'),
    "layers_off": ("hot, topics", '["topics", "hot"]'),
    "retention_days": ("conversation=365, hot=0.5", '{"hot": 0.5, "conversation": 365}'),
}
HOSTILE = (
    "nan", "inf", "-inf", "1e300", "-1e300", "1e-300", "-1", "0", "", " ", "null", "true", "[]",
    "{}", "[1]", '{"a": 1}', "a=b", "=", ",", "soon", "\u0661", "9" * 400, "1" * 5000, "[" * 5000,
    "http://[", "\ud800",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_least_and_a_most(name: str) -> None:
    """Whatever somebody writes, it is one that the server can work with."""

    def numbers(shape: dict[str, Any]) -> list[dict[str, Any]]:
        found = [shape] if shape.get("type") in ("number", "integer") else []
        parts = [*shape.get("anyOf", []), shape.get("items"), shape.get("additionalProperties")]
        return found + [
            number for part in parts if isinstance(part, dict) for number in numbers(part)
        ]

    for number in numbers(SCHEMA[name]):
        assert {"minimum", "exclusiveMinimum"} & number.keys(), name
        assert "maximum" in number, name


def test_every_collection_may_be_written_with_commas_or_as_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the environment; the two mean the same, and nothing written is none."""
    collections = {
        name for name, shape in SCHEMA.items() if shape.get("type") in ("array", "object")
    }
    assert collections == set(LISTS)
    for name, (commas, as_json) in LISTS.items():
        read = []
        for text in (commas, as_json, ""):
            monkeypatch.setenv(f"FOREMIND_{name.upper()}", text)
            read.append(getattr(load_settings(), name))
        assert read[0] == read[1] and len(read[0]) == 2 and len(read[2]) == 0, name


def test_an_origin_is_compared_as_browsers_send_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small letters, no slash at the end."""
    monkeypatch.setenv("FOREMIND_ALLOWED_ORIGINS", "https://Game.example/")
    assert load_settings().allowed_origins == ("https://game.example",)


@pytest.mark.parametrize("written", ["environment", "file"])
def test_null_is_no_limit(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    """Where a setting may have none."""
    if written == "file":
        Path(SETTINGS_FILE).write_text('memory_max_age_days = "null"')
    else:
        monkeypatch.setenv("FOREMIND_MEMORY_MAX_AGE_DAYS", "null")
    assert load_settings().memory_max_age_days is None


@pytest.mark.parametrize(
    ("environment", "file", "said"),
    [
        ({"FOREMIND_PAUSE_MSS": "1"}, "", "FOREMIND_PAUSE_MSS: not a setting; FOREMIND_PAUSE_MS"),
        (
            {"foremind_alowed_origins": "x"},
            "",
            "foremind_alowed_origins: not a setting; FOREMIND_A",
        ),
        ({"FOREMIND_XYZZY": "1"}, "", "FOREMIND_XYZZY: not a setting"),
        ({}, "pause_mss = 1", "foremind.toml: pause_mss: not a setting; pause_ms is"),
        ({}, "[server]\nport = 1", "foremind.toml: server: not a setting"),
        ({}, "pause_ms = 1", "foremind.toml: pause_ms: "),
        ({}, 'port = "x"', "foremind.toml: port: "),
        ({"FOREMIND_PORT": "x"}, "port = 1", "FOREMIND_PORT: "),
        ({}, "pause_ms =", "foremind.toml: Invalid value"),
        ({"FOREMIND_LAYERS_OFF": "hot,soul"}, "", "FOREMIND_LAYERS_OFF"),
        ({"FOREMIND_RETENTION_DAYS": "hot"}, "", "FOREMIND_RETENTION_DAYS: expected name=value"),
        ({"FOREMIND_RETENTION_DAYS": "soul=3"}, "", "FOREMIND_RETENTION_DAYS.soul"),
        ({"FOREMIND_ALLOWED_ORIGINS": "*"}, "", "FOREMIND_ALLOWED_ORIGINS: expected origins"),
        ({"FOREMIND_TRUSTED_PROXIES": "proxy"}, "", "FOREMIND_TRUSTED_PROXIES: expected addresses"),
        ({"FOREMIND_HOST_ADDRESSES": "1.2.3.4/99"}, "", "FOREMIND_HOST_ADDRESSES: expected addr"),
        ({"FOREMIND_HOST_ADDRESSES": "*"}, "", "FOREMIND_HOST_ADDRESSES: expected addresses"),
        ({"FOREMIND_LLM_URL": "localhost:8080"}, "", "FOREMIND_LLM_URL: expected an address"),
        ({"FOREMIND_PORT": "x", "FOREMIND_EAGER": "maybe"}, "", "FOREMIND_EAGER"),
        ({"FOREMIND_DATA_DIR": "/proc/nowhere"}, "", "FOREMIND_DATA_DIR: "),
        ({"FOREMIND_LLM_TOKENIZER": "/nowhere"}, "", "FOREMIND_LLM_TOKENIZER: "),
        ({"FOREMIND_AUTH_KEYS": "/nowhere"}, "", "FOREMIND_AUTH_KEYS: "),
        ({"FOREMIND_EMBEDDING_MODEL": "soul"}, "", "FOREMIND_EMBEDDING_MODEL: "),
    ],
)
def test_a_wrong_or_unknown_setting_is_told_in_one_line(
    environment: dict[str, str],
    file: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That names it as it is written, with the exit code of a failure and no trace."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    Path(SETTINGS_FILE).write_text(file)
    monkeypatch.setattr(sys, "argv", ["foremind", "serve", "--port", "0"])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr().err
    assert left.value.code == 1
    assert told.startswith("foremind: ") and told.count("\n") == 1
    assert said in told


def test_what_is_told_of_a_secret_is_not_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what stands beside it."""
    Path(SETTINGS_FILE).write_text("auth_secret = [17041704]\npause_ms = 17041704")
    with pytest.raises(InvalidFile) as told:
        load_settings()
    assert "auth_secret" in told.value.message and "17041704" not in told.value.message


@pytest.mark.parametrize("name", NAMES)
def test_no_setting_of_the_environment_or_the_file_is_a_trap(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written there is refused by name, or everything can be worked out from it."""
    text = SCHEMA[name].get("type") in ("string", None) and "number" not in str(SCHEMA[name])
    for value in HOSTILE[::5] if text else HOSTILE:
        with monkeypatch.context() as here:
            if "\ud800" not in value:
                here.setenv(f"FOREMIND_{name.upper()}", value)
                _refused_or_works(f"FOREMIND_{name.upper()}")
    for literal in ("nan", "inf", "-inf", "1e300", "-1", "0", "[]", "{}", "true", "'x'", "9" * 30):
        Path(SETTINGS_FILE).write_text(f"{name} = {literal}\n")
        _refused_or_works(f"{SETTINGS_FILE}: {name}", SETTINGS_FILE)
    Path(SETTINGS_FILE).unlink()


def _refused_or_works(*named: str) -> None:
    try:
        settings = load_settings()
    except InvalidFile as error:
        assert error.message.startswith(named)
        assert "\n" not in error.message
    else:
        policy_for(CompanionSettings(), settings)


@trying(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([*NAMES, "soul"]), st.text(max_size=20), max_size=3))
def test_any_file_is_read_or_refused(written: dict[str, str]) -> None:
    """Never with a trace."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in written.items()]
    Path(SETTINGS_FILE).write_text("\n".join(lines), "utf-8", errors="replace")
    _refused_or_works(SETTINGS_FILE)


def test_every_variable_that_the_documents_and_the_code_name_is_known() -> None:
    """A setting, or one of the few others that are listed."""
    files = [
        *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("server/**/*.py"),
        *ROOT.glob("examples/*"), *ROOT.glob("deploy/*"), *ROOT.glob("loadtests/**/*.py"),
    ]  # fmt: skip
    named = {
        name
        for file in files
        if file.is_file()
        for name in re.findall(r"FOREMIND_[A-Z_]*[A-Z]\b", file.read_text("utf-8"))
    }
    assert len(named) > len(NAMES)
    assert unknown_variables(named, NAMES) == []


def test_no_setting_is_named_like_a_key_of_a_companion() -> None:
    """`FOREMIND_LLM_KEY_…` holds keys, and nothing else."""
    assert not [name for name in NAMES if name.startswith("llm_key_")]
