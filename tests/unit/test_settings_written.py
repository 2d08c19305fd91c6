"""Settings in the environment and in the file: syntax, limits, and error messages."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import fields

from foremind.app.configuration import SETTINGS_FILE, load_settings, unknown_variables
from foremind.cli.main import main
from foremind.domain.errors import InvalidFile
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings, Settings
from tests.conftest import ROOT

NAMES = sorted(Settings.__struct_fields__)
_, _COMPONENTS = msgspec.json.schema_components(
    [msgspec.defstruct("Shapes", [(field.name, field.type) for field in fields(Settings)])],
    schema_hook=lambda _: {"type": "string"},
)
SCHEMA = _COMPONENTS["Shapes"]["properties"]
LISTS = {
    "allowed_origins": ("http://a,http://b:81", '["http://a", "http://b:81"]'),
    "trusted_proxies": ("10.0.0.1, 10.0.0.2", '["10.0.0.1", "10.0.0.2"]'),
    "host_addresses": ("10.1.0.0/16, ::2", '["10.1.0.0/16", "::2/128"]'),
    "layers_off": ("hot, topics", '["topics", "hot"]'),
    "retention_days": ("conversation=365, hot=0.5", '{"hot": 0.5, "conversation": 365}'),
    "llm_extra": (' {"top_p": 0.9, "stop": ["Ana:"]}', '{"stop": ["Ana:"], "top_p": 0.9}'),
}
HOSTILE = (
    "nan", "inf", "-inf", "1e300", "-1e300", "1e-300", "-1", "0", "", " ", "null", "true", "[]",
    "{}", "[1]", '{"a": 1}', "a=b", "=", ",", "soon", "\u0661", "9" * 400, "1" * 5000, "[" * 5000,
    "http://[", "\ud800",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _empty_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_minimum_and_a_maximum(name: str) -> None:
    """So every accepted value is usable."""

    def numbers(shape: dict[str, Any]) -> list[dict[str, Any]]:
        own = [shape] if shape.get("type") in ("number", "integer") else []
        parts = [*shape.get("anyOf", []), shape.get("items"), shape.get("additionalProperties")]
        return own + [
            number for part in parts if isinstance(part, dict) for number in numbers(part)
        ]

    for number in numbers(SCHEMA[name]):
        assert {"minimum", "exclusiveMinimum"} & number.keys(), name
        assert "maximum" in number, name


def test_every_collection_may_be_written_with_commas_or_as_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the environment; both mean the same, and an empty value is an empty collection."""
    collections = {
        name for name, shape in SCHEMA.items() if shape.get("type") in ("array", "object")
    }
    assert collections == set(LISTS)
    for name, (commas, as_json) in LISTS.items():
        values = []
        for text in (commas, as_json, ""):
            monkeypatch.setenv(f"FOREMIND_{name.upper()}", text)
            values.append(getattr(load_settings(), name))
        assert values[0] == values[1] and len(values[0]) == 2 and len(values[2]) == 0, name


def test_origins_are_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the form that browsers send: lower case, no trailing slash."""
    monkeypatch.setenv("FOREMIND_ALLOWED_ORIGINS", "https://Game.example/")
    assert load_settings().allowed_origins == ("https://game.example",)


@pytest.mark.parametrize("source", ["environment", "file"])
def test_null_means_no_limit(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """For settings that may be unlimited."""
    if source == "file":
        Path(SETTINGS_FILE).write_text('memory_max_age_days = "null"')
    else:
        monkeypatch.setenv("FOREMIND_MEMORY_MAX_AGE_DAYS", "null")
    assert load_settings().memory_max_age_days is None


@pytest.mark.parametrize(
    ("name", "text", "literal", "value"),
    [
        ("port", "9000", "9000.0", 9000),
        ("port", " 9000 ", "'9000'", 9000),
        ("drain_s", "3", "3", 3.0),
        ("drain_s", "2.5", "'2.5'", 2.5),
        ("eager", "off", "false", False),
        ("eager", "No", "0", False),
        ("mcp", "1", "'on'", True),
        ("max_connections", "null", "'null'", None),
        ("retention_days", '{"hot": "3"}', "{hot = 3}", {"hot": 3.0}),
        (
            "llm_extra",
            '{"top_p": 0.9, "seed": "7", "stop": ["A"], "logit_bias": null}',
            '''"""{"top_p": 0.9, "seed": "7", "stop": ["A"], "logit_bias": null}"""''',
            {"top_p": 0.9, "seed": "7", "stop": ["A"], "logit_bias": None},
        ),
        (
            "llm_extra",
            '{"chat_template_kwargs": {"enable_thinking": false}}',
            "{chat_template_kwargs = {enable_thinking = false}}",
            {"chat_template_kwargs": {"enable_thinking": False}},
        ),
    ],
)
def test_a_value_means_the_same_in_the_environment_and_in_the_file(
    name: str, text: str, literal: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers, switches and mappings, whichever way they are written."""
    with monkeypatch.context() as patch:
        patch.setenv(f"FOREMIND_{name.upper()}", text)
        assert getattr(load_settings(), name) == value
    Path(SETTINGS_FILE).write_text(f"{name} = {literal}")
    assert getattr(load_settings(), name) == value


@pytest.mark.parametrize(
    ("environment", "file", "expected"),
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
        ({"FOREMIND_RETENTION_DAYS": "hot=3,hot=9"}, "", "FOREMIND_RETENTION_DAYS: expected every"),
        ({"FOREMIND_RETENTION_DAYS": "cold=3"}, "", "FOREMIND_RETENTION_DAYS.cold: expected"),
        ({"FOREMIND_RETENTION_DAYS": "soul=3"}, "", "FOREMIND_RETENTION_DAYS.soul"),
        ({"FOREMIND_LLM_EXTRA": "top_p=0.9"}, "", "FOREMIND_LLM_EXTRA: expected a JSON object"),
        ({"FOREMIND_LLM_EXTRA": '{"top_p": NaN}'}, "", "FOREMIND_LLM_EXTRA: expected a JSON"),
        *(
            ({"FOREMIND_LLM_EXTRA": f'{{"{name}": 1}}'}, "", f"FOREMIND_LLM_EXTRA.{name}: expected")
            for name in ("messages", "stream", "model", "max_tokens", "n", "tools", "Messages")
        ),
        ({}, "[llm_extra]\nstream = false", "foremind.toml: llm_extra.stream: expected a field"),
        ({"FOREMIND_ALLOWED_ORIGINS": "*"}, "", "FOREMIND_ALLOWED_ORIGINS: expected origins"),
        ({"FOREMIND_TRUSTED_PROXIES": "proxy"}, "", "FOREMIND_TRUSTED_PROXIES: expected addresses"),
        ({"FOREMIND_HOST_ADDRESSES": "1.2.3.4/99"}, "", "FOREMIND_HOST_ADDRESSES: expected addr"),
        ({"FOREMIND_HOST_ADDRESSES": "*"}, "", "FOREMIND_HOST_ADDRESSES: expected addresses"),
        ({"FOREMIND_LLM_URL": "localhost:8080"}, "", "FOREMIND_LLM_URL: expected an address"),
        ({"FOREMIND_PORT": "x", "FOREMIND_EAGER": "maybe"}, "", "FOREMIND_EAGER"),
        ({"FOREMIND_VECTOR_WEIGHT": "7"}, "", "WEIGHT: expected a number of at most 1"),
        ({"FOREMIND_HOST_ADDRESSES": "[1]"}, "", "FOREMIND_HOST_ADDRESSES[0]: expected text"),
        ({}, "drain_s = true", "foremind.toml: drain_s: expected a number"),
        ({"FOREMIND_DATA_DIR": "/proc/nowhere"}, "", "FOREMIND_DATA_DIR: "),
        ({"FOREMIND_LLM_TOKENIZER": "/nowhere"}, "", "FOREMIND_LLM_TOKENIZER: "),
        ({"FOREMIND_AUTH_KEYS": "/nowhere"}, "", "FOREMIND_AUTH_KEYS: "),
        ({"FOREMIND_EMBEDDING_MODEL": "soul"}, "", "FOREMIND_EMBEDDING_MODEL: "),
    ],
)
def test_an_invalid_or_unknown_setting_is_reported_in_one_line(
    environment: dict[str, str],
    file: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line names it as it was written; the exit code is 1, and there is no traceback."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    Path(SETTINGS_FILE).write_text(file)
    monkeypatch.setattr(sys, "argv", ["foremind", "serve", "--port", "0"])
    with pytest.raises(SystemExit) as exited:
        main()
    error = capsys.readouterr().err
    assert exited.value.code == 1
    assert error.startswith("foremind: ") and error.count("\n") == 1
    assert expected in error


def test_an_error_message_does_not_contain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be secrets."""
    Path(SETTINGS_FILE).write_text("auth_secret = [17041704]\npause_ms = 17041704")
    with pytest.raises(InvalidFile) as caught:
        load_settings()
    assert "auth_secret" in caught.value.message and "17041704" not in caught.value.message


@pytest.mark.parametrize("name", NAMES)
def test_any_value_of_a_setting_is_refused_or_usable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal names the setting; otherwise a policy can be made from it."""
    is_text = SCHEMA[name].get("type") in ("string", None) and "number" not in str(SCHEMA[name])
    for value in HOSTILE[::5] if is_text else HOSTILE:
        with monkeypatch.context() as patch:
            if "\ud800" not in value:
                patch.setenv(f"FOREMIND_{name.upper()}", value)
                _check_refused_or_usable(f"FOREMIND_{name.upper()}")
    for literal in ("nan", "inf", "-inf", "1e300", "-1", "0", "[]", "{}", "true", "'x'", "9" * 30):
        Path(SETTINGS_FILE).write_text(f"{name} = {literal}\n")
        _check_refused_or_usable(f"{SETTINGS_FILE}: {name}", SETTINGS_FILE)
    Path(SETTINGS_FILE).unlink()


def _check_refused_or_usable(*names: str) -> None:
    try:
        settings = load_settings()
    except InvalidFile as error:
        assert error.message.startswith(names)
        assert "\n" not in error.message
    else:
        policy_for(CompanionSettings(), settings)


@hypothesis_settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([*NAMES, "soul"]), st.text(max_size=20), max_size=3))
def test_any_file_is_accepted_or_refused(values: dict[str, str]) -> None:
    """No other error is raised."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    Path(SETTINGS_FILE).write_text("\n".join(lines), "utf-8", errors="replace")
    _check_refused_or_usable(SETTINGS_FILE)


def test_every_variable_named_in_the_repository_is_known() -> None:
    """It is a setting, or one of the other listed variables."""
    files = [
        *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("server/**/*.py"),
        *ROOT.glob("examples/*"), *ROOT.glob("deploy/*"), *ROOT.glob("loadtests/**/*.py"),
        *ROOT.glob("clients/python/**/*.py"), *ROOT.glob("evaluation/**/*.py"),
    ]  # fmt: skip
    mentioned = {
        name
        for file in files
        if file.is_file()
        for name in re.findall(r"FOREMIND_[A-Z_]*[A-Z]\b", file.read_text("utf-8"))
    }
    assert len(mentioned) > len(NAMES)
    assert unknown_variables(mentioned) == []


def test_no_setting_has_the_prefix_of_companions_keys() -> None:
    """`FOREMIND_LLM_KEY_…` is reserved for API keys."""
    assert not [name for name in NAMES if name.startswith("llm_key_")]
