"""Settings: read once, checked, safe by default."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from foremind.app.configuration import load_settings, read_companion
from foremind.domain.errors import InvalidFile, UnsafeBinding
from foremind.domain.policy import overlay_settings, policy_for
from foremind.domain.settings.setting_definitions import EXPIRING_NAMES
from foremind.domain.settings.setting_levels import clamped, read_settings
from foremind.domain.settings.settings import CompanionSettings, Settings, check_binding
from tests.docs.settings_reference import PATH, reference


def test_the_defaults_are_the_published_ones() -> None:
    """Pause, weights, threshold, window, life."""
    settings = load_settings()
    policy = policy_for(CompanionSettings(), settings)
    assert policy.pause_s == 0.5
    assert (policy.recall.vector_weight, policy.recall.keyword_weight) == (0.70, 0.30)
    assert (policy.recall.significance_threshold, policy.recall.max_age_days) == (0.30, 90.0)
    assert policy.recall.limit == 10
    assert (policy.layers.working_tokens, policy.layers.share) == (12_000, 0.20)
    assert (policy.layers.summary_tokens, policy.layers.summary_messages) == (8000, 20)
    assert policy.layers.session == timedelta(hours=24)
    assert settings.prepared_ttl_s == 60.0


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([{}], {}),
        ([{"vault": 9}], {"vault": 9}),
        ([{"all": 30}], {"hot": 30, "conversation": 30, "transcript": 30}),
        ([{"all": 30, "hot": 90}], {"hot": 90, "vault": 30}),
        ([{"all": 30, "hot": 90}, {"vault": 60}], {"hot": 90, "vault": 60, "event": 30}),
        ([{"hot": 90}, {"all": 30}], {"hot": 30, "vault": 30}),
        ([{"hot": 3}, {"all": 30}], {"hot": 3, "vault": 30}),
        ([{"hot": 90}, {"all": 30, "hot": 365}], {"hot": 365, "vault": 30}),
        ([{"hot": 90}, {"all": 30}, {"hot": 60}], {"hot": 60, "vault": 30}),
    ],
)
def test_all_is_for_whatever_no_narrower_level_names(
    levels: list[dict[str, float]], expected: dict[str, float]
) -> None:
    """From the server on; of a wider level's name and a narrower `all` the shorter one counts."""
    server, *narrower = levels
    settings = CompanionSettings()
    for level in narrower:
        settings = overlay_settings(settings, read_settings({"retention_days": level}))
    retention = policy_for(settings, load_settings(retention_days=server)).layers.retention
    assert expected.items() <= {name: age.days for name, age in retention.items()}.items()
    assert len(retention) == (len(EXPIRING_NAMES) if "all" in str(levels) else len(expected))


def test_a_players_retention_is_bounded_by_all() -> None:
    """Where the operator does not name the layer."""
    operators = CompanionSettings(retention_days={"all": 30, "vault": 90})
    own = CompanionSettings(retention_days={"hot": 60, "vault": 60, "episodes": 3, "all": 99})
    bounded = clamped(own, operators, load_settings()).retention_days
    assert bounded == {"hot": 30, "vault": 60, "episodes": 3, "all": 30}


def test_a_wrong_value_names_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an operator finds it."""
    monkeypatch.setenv("FOREMIND_PAUSE_MS", "soon")
    with pytest.raises(InvalidFile, match="FOREMIND_PAUSE_MS"):
        load_settings()


@pytest.mark.parametrize(
    "url", ["", "postgres", "mysql://u:secret@h/x", "postgresql://u:secret@h:port/x", "host:5432"]
)
def test_a_wrong_database_address_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """By name and with an example; an empty one does not mean the embedded PostgreSQL."""
    monkeypatch.setenv("FOREMIND_DATABASE_URL", url)
    with pytest.raises(InvalidFile, match=r"^FOREMIND_DATABASE_URL: expected .*postgresql://") as e:
        load_settings()
    assert "secret" not in str(e.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/x", "postgres://u:p%40ss@h:5432/x?sslmode=require",
        "postgresql:///x?host=/run/postgresql", "postgresql://u@[::1]:5432/x",
        "postgresql://u:p:q@a:5432,b:5433/x", "postgresql://a,b",
    ],
)  # fmt: skip
def test_every_form_of_a_database_address_is_accepted(url: str) -> None:
    """Hosts, several or a socket; with and without ports."""
    assert load_settings(database_url=url).database_url is not None


@pytest.mark.parametrize("name", ["data_dir", "models_path", "auth_keys", "llm_tokenizer"])
def test_an_empty_path_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It would mean the working directory."""
    monkeypatch.setenv(f"FOREMIND_{name.upper()}", "")
    with pytest.raises(InvalidFile, match=f"^FOREMIND_{name.upper()}: expected a path"):
        load_settings()


def test_the_environment_wins_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the file over the defaults."""
    (tmp_path / "foremind.toml").write_text("pause_ms = 700\nport = 9000\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOREMIND_PORT", "9001")
    settings = load_settings()
    assert (settings.pause_ms, settings.port) == (700, 9001)


COMPANION = 'slug = "a"\nname = "A"\npersona = "p"\n'


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "game.example"])
def test_reachable_from_outside_needs_authentication(host: str) -> None:
    """Or the server refuses to start."""
    with pytest.raises(UnsafeBinding, match="FOREMIND_AUTH_SECRET"):
        check_binding(load_settings(host=host))
    check_binding(load_settings(host=host, auth_secret="s" * 32))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_may_be_open(host: str) -> None:
    """Only this machine reaches it."""
    check_binding(load_settings(host=host))


def test_a_short_secret_is_no_secret() -> None:
    """HS256 wants 32 bytes."""
    with pytest.raises(UnsafeBinding, match="32 bytes"):
        check_binding(load_settings(auth_secret="short"))


def test_a_companion_overrides_the_server() -> None:
    """Only what it names."""
    own = CompanionSettings(pause_ms=300, vector_weight=0.5, recall_any_age=True)
    policy = policy_for(own, load_settings())
    assert (policy.pause_s, policy.recall.vector_weight) == (0.3, 0.5)
    assert (policy.recall.keyword_weight, policy.recall.max_age_days) == (0.30, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('slug = "a b"\nname = "A"\npersona = "p"', "slug"),
        ('slug = "a"\nname = "A"', "persona"),
        ('slug = "a"\nname = " "\npersona = "p"', "name"),
        ('slug = "a"\nname = "A"\npersona = "p"\nmood = 1', "mood"),
        ('slug = "a"\nname = "A"\npersona = "p"\n[settings]\npause_ms = "x"', "pause_ms"),
        ('slug = "a"\nname = "A"\npersona = "p"\n[settings]\npause_ms = 1', "pause_ms"),
        ('slug = "a"\nname = "A"\npersona = "p"\n[settings]\nvector_weight = 7', "vector_weight"),
        (f"{COMPANION}[settings]\nmemory_decay = 'never'", "memory_decay"),
        (f"{COMPANION}[settings.significance.phrases]\nrain = 2", "phrases"),
        (f"{COMPANION}[settings.significance.signals]\nhunger = 0.2", "signals"),
        ('slug = "a"\nname = "A"\npersona = "a\\u0000b"', "persona"),
        ("slug = ", "companion.toml"),
    ],
)
def test_a_wrong_companion_file_names_the_field(text: str, said: str, tmp_path: Path) -> None:
    """And nothing is stored of it."""
    path = tmp_path / "companion.toml"
    path.write_text(text)
    with pytest.raises(InvalidFile, match=said):
        read_companion(path)


def test_the_documented_table_is_the_settings() -> None:
    """docs/settings.md is what `make docs` writes: every setting, its default and its meaning."""
    text = PATH.read_text("utf-8")
    assert text == reference()
    documented = re.findall(r"^\| `FOREMIND_(\w+)` \|", text, re.MULTILINE)
    assert sorted(documented) == sorted(name.upper() for name in Settings.__struct_fields__)
