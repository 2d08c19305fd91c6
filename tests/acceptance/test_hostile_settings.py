"""Hostile values of settings: refused by name on every level, and harmless where stored."""

import json
from typing import Any

import pytest

from foremind.app.configuration import read_companion
from foremind.domain.announcements import CompanionChanged, SettingsChanged
from foremind.domain.errors import InvalidFile
from foremind.domain.settings.setting_levels import TURN_SETTINGS
from foremind.domain.settings.settings import CompanionSettings
from foremind.storage.companion_store import settings_from_json
from tests.acceptance.test_setting_levels import SETTING_NAMES, Ana, ana
from tests.conftest import StartServer, owner_of

_BIG = "1" + "0" * 400
HOSTILE = (
    "NaN", "1e300", "-1e300", "1e999", "-1", "0", "1" + "0" * 400, "9" * 5000, "true", '"x"',
    '"\\u0000"', "[]", "{}", '{"hot": 1e300}', '{"phrases": {"\\u0000": 1}}',
    '{"phrases": {"a": 1e300}}', "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000,
    '"http://["', '"FOREMIND_AUTH_SECRET"', '"FOREMIND_LLM_KEY_A\\n"',
)  # fmt: skip


async def _assert_usable(a: Ana) -> None:
    """Assert that everything about Ana's relationship can still be read and processed."""
    base = f"/v1/relationships/{a.relationship}"
    for path in ("/config", "/context?draft=And+now%3F", "/memories"):
        response = await a.http.get(f"{base}{path}{'&' if '?' in path else '?'}user=ana")
        assert response.status_code == 200, (path, response.text)
    response = await a.http.get("/v1/relationships?user=ana")
    assert response.status_code == 200
    assert (await a.http.get("/v1/admin/companions?user=ana")).status_code == 200
    assert await a.background_policies()


async def test_hostile_values_are_refused_by_name_or_harmless(start: StartServer) -> None:
    """For every setting, set by an operator for a relationship or a companion."""
    async with ana(start) as a:
        patch = f"/v1/relationships/{a.relationship}/config?user=ana"
        put = "/v1/admin/companions/wren?user=ana"
        for index, name in enumerate((*SETTING_NAMES, "soul")):
            for number, value in enumerate(HOSTILE):
                settings = f'"settings": {{"{name}": {value}}}'
                if (index + number) % 2:  # so that each request meets every value and every setting
                    accepted = await _is_accepted(a, "PATCH", patch, f"{{{settings}}}", name)
                else:
                    body = f'{{"name": "W", "persona": "P.", {settings}}}'
                    accepted = await _is_accepted(a, "PUT", put, body, name)
                if accepted:
                    await _assert_usable(a)
            await a.patch(None)
        assert (await a.put({})).status_code == 200
        await a.say("Is all well?")


async def _is_accepted(a: Ana, method: str, path: str, body: str, name: str) -> bool:
    response = await a.http.request(method, path, content=body)
    if response.status_code == 200:
        return True
    assert response.status_code == 400, (name, body[:100], response.text)
    error = response.json()["error"]
    not_decodable = error["param"] == "body"  # invalid JSON, or a number out of any range
    assert not_decodable or error["param"].startswith("settings"), (name, error)
    assert not_decodable or name in error["message"] or name in error["param"], (name, error)
    return False


async def test_hostile_settings_of_a_message_are_refused_by_name(start: StartServer) -> None:
    """Messages with accepted values are answered."""
    async with ana(start, sends_per_s=1e6) as a:
        for name in sorted(TURN_SETTINGS):
            for number, value in enumerate(HOSTILE[::3]):
                id_ = f"{name}{number}"
                await a.client._socket.send(
                    f'{{"type": "message.send", "event_id": "{id_}", "id": "{id_}", '
                    f'"text": "Hm", "settings": {{"{name}": {value}}}}}'
                )
                while True:
                    event = await a.client.next_event()
                    if event["type"] == "response.done":
                        assert event["status"] == "completed", event
                        break
                    if event["type"] == "error":
                        error = event["error"]
                        assert error["code"] in ("invalid_message", "malformed_json"), (id_, error)
                        named = error["param"] == f"settings.{name}"
                        assert named or name in error["message"] or value[:1] in "N[{", error
                        break
        await a.say("Is all well?")


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_hostile_values_in_a_companion_file_are_refused(name: str, tmp_path: Any) -> None:
    """With the name of the setting, or accepted."""
    file = tmp_path / "wren.toml"
    for value in ("nan", "inf", "-inf", "1e300", "-1", "9" * 30, "'x'", "[]", "{}", "[[[]]]"):
        file.write_text(f'slug = "w"\nname = "W"\npersona = "P"\n[settings]\n{name} = {value}\n')
        try:
            read_companion(file)
        except InvalidFile as error:
            assert name in error.message


_BAD_SETTINGS: tuple[Any, ...] = (
    {"session_hours": 1e300, "recall_limit": 3},
    {"session_hours": -1, "recall_limit": 3},
    {
        "topic_half_life_days": 1e9,
        "retention_days": {"hot": 1e300, "vault": 3},
        "recall_limit": 3,
    },
    {"soul": 1, "recall_limit": 3, "pause_ms": "soon", "layers_off": ["soul"]},
    {"significance": {"phrases": {"a": 7}, "learned": False, "soul": 1}, "recall_limit": 3},
    {"llm_key_env": "FOREMIND_AUTH_SECRET", "llm_tokenizer": "/nowhere", "recall_limit": 3},
    {"context_tokens": 10**40, "llm_max_tokens": 10**400, "recall_limit": 3},
    {"scratchpad": {"kinds": 3}, "behaviours": [{"name": 1}], "recall_limit": 3},
    {"memory_max_age_days": 1e308, "memory_half_life_days": 0, "recall_limit": 3},
)
_OTHER_JSON: tuple[Any, ...] = (
    [],
    None,
    7,
    "recall_limit",
    [{"recall_limit": 3}],
    {},
    {"a": {"b": {"c": []}}},
)


@pytest.mark.parametrize("column", ["settings", "operator_settings", "companions"])
async def test_invalid_settings_in_the_database_are_ignored(
    start: StartServer, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They fall back to the wider level with a warning; the valid ones of the same row apply."""
    async with ana(start) as a:
        owner = owner_of(a.server.app.core)
        table = "companions" if column == "companions" else "relationships"
        column_name = "settings" if column == "companions" else column
        for number, row in enumerate((*_BAD_SETTINGS, *_OTHER_JSON)):
            # PostgreSQL stores numbers in full: 1e300 has 301 digits.
            await owner.execute(f"UPDATE {table} SET {column_name} = $1", json.dumps(row))
            caplog.clear()
            settings_from_json.cache_clear()
            current = a.session._services.live_settings
            await current.reload(CompanionChanged(a.session._session_policy.companion.id, 0))
            await current.reload(SettingsChanged(a.session.relationship_id, 0))
            await _assert_usable(a)
            config = await a.config()
            if row in _BAD_SETTINGS:
                assert config["recall_limit"]["value"] == a.policy.recall.limit == 3
                assert "settings.unusable" in caplog.text
            else:
                assert config["recall_limit"]["value"] == 10
            assert config["session_hours"]["value"] == 24
            if number % 5:
                continue
            aunt = _BAD_SETTINGS.index(row) if row in _BAD_SETTINGS else row
            await a.say(f"My aunt number {aunt} is Rita")
            await a.session._services.after_reply.background_worker.run_due_steps(a.relationship)
            base = f"/v1/relationships/{a.relationship}/memories"
            response = await a.http.delete(f"{base}?user=ana&about=Rita")
            assert response.status_code == 200, response.text
            assert response.json()["turns"] >= 1
        other = await a.server.connect()
        opened = await other.open_session("wren", user_id="ana", name="Ana")
        assert opened["type"] == "session.opened"
        assert (await a.patch({"pause_ms": 700})).status_code == 200
        assert (await a.config())["pause_ms"]["value"] == 700


def test_warnings_about_settings_contain_no_stored_values(caplog: pytest.LogCaptureFixture) -> None:
    """Only the names of known settings: anything else may be text of a user."""
    raw = '{"hunter2": 1, "pause_ms": "hunter2", "significance": {"phrases": {"hunter2": 9}}}'
    assert settings_from_json(raw) == CompanionSettings()
    assert "pause_ms" in caplog.text and "significance" in caplog.text
    assert "hunter2" not in caplog.text
