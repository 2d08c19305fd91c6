"""Settings on the levels server, companion, relationship and turn: effective values and bounds."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from foremind.app.configuration import load_settings
from foremind.domain.companion import CompanionFile
from foremind.domain.policy import Policy, policy_for
from foremind.domain.settings.setting_levels import OPERATOR_SETTINGS, PLAYER_BOUNDS, TURN_SETTINGS
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.gateway.protocol.client_messages import MessageSend
from foremind.gateway.session import Session
from foremind_client import Client
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from foremind_models import ConvertedEncoder
from tests.acceptance.setting_table import SettingRow, setting_rows
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

#: Settings of a character in worlds, whichever relationship it has: see test_worlds.
_OF_A_CHARACTER = {"mind", "speaks_first"}
SETTING_NAMES = [
    name for name in CompanionSettings.__struct_fields__ if name not in _OF_A_CHARACTER
]
TABLE = setting_rows(("http://a/v1", "http://b/v1"), ("a.json", "b.json"))


@dataclass
class Ana:
    """A server with a model, an open session of Ana, and requests about her relationship."""

    server: RunningServer
    model: ScriptedModel
    client: Client
    relationship: int
    http: httpx2.AsyncClient

    @property
    def session(self) -> Session:
        """The open session."""
        (session,) = self.server.app.registry.sessions()
        return session

    @property
    def policy(self) -> Policy:
        """The policy that the session uses."""
        return self.session._session_policy.policy

    async def put(self, settings: object, persona: str = "P.") -> httpx2.Response:
        """Change the settings of the companion."""
        body = {"name": "Wren", "persona": persona, "settings": settings}
        return await self.http.put("/v1/admin/companions/wren?user=ana", json=body)

    async def patch(self, settings: object) -> httpx2.Response:
        """Change the settings of the relationship."""
        path = f"/v1/relationships/{self.relationship}/config?user=ana"
        return await self.http.patch(path, content=json.dumps({"settings": settings}))

    async def config(self) -> Any:
        """Return the settings that are shown as effective."""
        path = f"/v1/relationships/{self.relationship}/config?user=ana"
        return (await self.http.get(path)).json()

    async def say(self, text: str, settings: object = None, **names: str) -> dict[str, Any]:
        """Send a message; return the resulting events by type."""
        message = {"type": "message.send", "id": names.get("id", text), "text": text}
        await self.client.send_raw(message | ({} if settings is None else {"settings": settings}))
        return await self.client.expect_all("message.accepted", "response.done", "memory.stored")

    async def background_policies(self) -> list[Policy]:
        """Return the policies that ingest and background work use."""
        services = self.session._services
        turn_id = (await services.stores.turns.recent_turns(self.relationship, 1))[0].id
        memories = self.server.app.core.stores.memories
        turns = await memories.turns(self.relationship, [turn_id])
        relationship = (
            await services.after_reply.background_worker._background_store.relationship_state(
                self.relationship, self.server.app.core.runtime.clock.now()
            )
        )
        assert turns is not None and relationship is not None
        context = await services.after_reply.background_worker._steps.context_for(relationship)
        ingest_policy = services.after_reply.ingester.policy_of(turns)
        assert context.policy == ingest_policy.layers
        assert context.server is not None
        assert (context.server.options.model, context.server.options.address.url) == (
            ingest_policy.chat_model.model,
            ingest_policy.chat_model.url,
        )
        return [ingest_policy]


@asynccontextmanager
async def ana(start: StartServer, **settings: Any) -> AsyncIterator[Ana]:
    """Start a server with an open session of Ana, who has sent a message."""
    async with scripted_model(Script(background=background_answer)) as model:
        server = await start(**({"llm_url": model.url, "http_per_s": 1e6} | settings))
        client = await server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        base = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
            connected = Ana(server, model, client, int(opened["relationship_id"]), http)
            await connected.say("I promise to remember the red door")
            yield connected


def test_every_setting_has_a_row_and_a_level() -> None:
    """A new setting fails here until it is in the table."""
    assert set(TABLE) == set(SETTING_NAMES)
    assert {name for name, row in TABLE.items() if "server" in row.values} == {
        name for name in SETTING_NAMES if name in Settings.__struct_fields__
    }
    assert {
        name for name, row in TABLE.items() if "relationship" not in row.values
    } == OPERATOR_SETTINGS - _OF_A_CHARACTER
    assert {name for name, row in TABLE.items() if "turn" in row.values} == TURN_SETTINGS
    assert set(PLAYER_BOUNDS) <= {*SETTING_NAMES, *_OF_A_CHARACTER} - OPERATOR_SETTINGS


@pytest.mark.parametrize("name", [name for name in SETTING_NAMES if "server" in TABLE[name].values])
def test_server_settings_apply_unless_overridden(name: str) -> None:
    row = TABLE[name]
    policy = policy_for(CompanionSettings(), load_settings(**{name: row.values["server"]}))
    assert row.effective(policy) == row.expected("server")
    assert row.effective(policy_for(CompanionSettings(), load_settings())) != row.expected("server")


async def test_the_configuration_shows_the_effective_settings(
    start: StartServer, model: ConvertedEncoder, settings: Settings, tmp_path: Path
) -> None:
    """Every setting, set and unset on every level, in an open session and in the background."""
    tokenizers = (str(tmp_path / "one.json"), str(tmp_path / "two.json"))
    (tokenizer, *_) = settings.models_dir.glob("**/tokenizer.json")
    for path in tokenizers:
        shutil.copy(tokenizer, path)
    async with ana(start, retention_days=TABLE["retention_days"].values["server"]) as a:
        table = setting_rows((a.model.url, f"{a.model.url}/"), tokenizers)
        for name, row in table.items():
            before = row.effective(a.policy)
            await _set_and_unset_on_every_level(a, name, row)
            assert row.effective(a.policy) == before, name


async def _set_and_unset_on_every_level(a: Ana, name: str, row: SettingRow) -> None:
    for level, setting in (("companion", a.put), ("relationship", a.patch)):
        if level not in row.values:
            continue
        response = await setting({name: row.values[level]})
        assert response.status_code == 200, (name, response.text)
        await _assert_effective(a, name, row, level)
    if "turn" in row.values:
        turn = MessageSend(id="x", text="x", settings={name: _raw(row.values["turn"])})
        policy = a.session._session_policy.policy_of(turn, player=False)
        assert row.effective(policy) == row.expected("turn"), name
    if "relationship" in row.values:
        assert (await a.patch({name: None})).status_code == 200
        await _assert_effective(a, name, row, "companion")
    assert (await a.put({name: None})).status_code == 200


async def _assert_effective(a: Ana, name: str, row: SettingRow, level: str) -> None:
    """Assert that the session and the background use the value, and that it is shown."""
    expected = row.expected(level)
    assert row.effective(a.policy) == expected, (name, level)
    assert await a.background_policies() == [a.policy], (name, level)
    shown = (await a.config()).get(name)
    if name in OPERATOR_SETTINGS:
        assert shown is None
    else:
        assert shown["from"] == level, name
        value = policy_for(_as_settings({name: shown["value"]}), load_settings())
        assert row.effective(value) == expected, (name, level)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _as_settings(settings: dict[str, Any]) -> CompanionSettings:
    return msgspec.convert(settings, CompanionSettings)


async def test_settings_of_a_message_apply_to_its_turn_only(start: StartServer) -> None:
    """Its temperature and length reach the model; the next turn is as before."""
    async with ana(start) as a:
        await a.say("Tell me more", {"llm_temperature": 1.5, "llm_max_tokens": 17})
        await a.say("And more")
        sent = [
            (request["temperature"], request["max_tokens"])
            for request in a.model.script.player_requests
        ]
        assert sent == [(0.8, 400), (1.5, 17), (0.8, 400)]


async def test_significance_rules_of_a_relationship_apply(start: StartServer) -> None:
    """Its phrases in addition to the companion's, and its threshold."""
    async with ana(start) as a:
        rules = {"learned": False, "phrases": {"xylophone": 0.9}}
        await a.put({"significance": rules})
        await a.patch({"significance": {"phrases": {"bassoon": 0.8}}})
        for word, score in (("xylophone", 0.9), ("bassoon", 0.8)):
            stored = (await a.say(f"the {word} stands here"))["memory.stored"]
            assert (stored["stored"], stored["significance"]) == (True, score)
        await a.patch({"significance_threshold": 0.85})
        stored = (await a.say("a bassoon fell over"))["memory.stored"]
        assert stored["stored"] is False


async def test_a_patch_changes_only_the_settings_it_names(start: StartServer) -> None:
    """The others stay; null unsets a setting, or a part of one."""
    async with ana(start) as a:
        await a.patch({"recall_limit": 3, "retention_days": {"hot": 3, "vault": 4}})
        await a.patch({"pause_ms": 700, "retention_days": {"hot": None}})
        config = await a.config()
        assert (config["recall_limit"]["value"], config["pause_ms"]["value"]) == (3, 700)
        assert config["retention_days"] == {"value": {"vault": 4.0}, "from": "relationship"}
        await a.patch({"recall_limit": None})
        assert (await a.config())["recall_limit"] == {"value": 10, "from": "server"}
        await a.patch(None)
        config = await a.config()
        assert "relationship" not in {
            config[name]["from"] for name in SETTING_NAMES if name in config
        }


async def test_changes_to_a_companion_apply_from_the_next_message(start: StartServer) -> None:
    """In open sessions, also of other processes; contexts prefetched before are not used."""
    async with ana(start, eager=False, pause_ms=50) as a:
        other_server = await start(llm_url=a.model.url, eager=False, pause_ms=50)
        client = await other_server.session("bo")
        for session_client in (a.client, client):
            await session_client.send_raw({"type": "draft.update", "text": "What of the red door?"})
            await session_client.expect("context.ready")
        await a.put({"llm_model": "another"}, persona="You are a parrot.")
        events = await a.say("What of the red door?")
        spoken = a.model.script.player_requests[-1]
        assert "You are a parrot." in spoken["messages"][0]["content"]
        assert spoken["model"] == "another"
        assert events["message.accepted"]["context"] != "hit"
        (session,) = other_server.app.registry.sessions()
        await eventually(lambda: session._session_policy.companion.persona == "You are a parrot.")
        await client.send("What of the red door?")
        accepted = await client.expect("message.accepted")
        await client.expect("response.done")
        assert accepted["context"] != "hit"
        assert "parrot" in a.model.script.player_requests[-1]["messages"][0]["content"]


async def test_changes_made_in_the_database_apply_as_well(start: StartServer) -> None:
    """As by `foremind companions put`, and after a lost connection to the database."""
    async with ana(start) as a:
        companions = a.server.app.core.stores.companions
        await companions.put(CompanionFile("wren", "Wren", "You are a crow."))
        await eventually(lambda: a.session._session_policy.companion.persona == "You are a crow.")
        await owner_of(a.server.app.core).execute(
            "UPDATE companions SET persona = 'You are a rook.', version = version + 1"
        )
        await a.session._services.freshness.catch_up()
        await a.session._services.live_settings.settled(a.session.relationship_id)
        assert a.session._session_policy.companion.persona == "You are a rook."


async def test_the_session_length_of_a_relationship_applies(start: StartServer) -> None:
    """Other sessions with the companion continue after two hours."""
    clock = ManualClock()
    server = await start(clock)
    before = {}
    for user in ("ana", "bo"):
        client = await server.connect()
        before[user] = await client.open_session("wren", user_id=user, name=user)
        await client.send("I promise to remember the red door")
        await client.expect("memory.stored")
    path = f"/v1/relationships/{before['ana']['relationship_id']}/config?user=ana"
    base = f"http://127.0.0.1:{server.port}"
    async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
        response = await http.patch(path, json={"settings": {"session_hours": 1}})
    assert response.status_code == 200
    await clock.leap(7200)
    after = {}
    for user in before:
        client = await server.connect()
        after[user] = await client.open_session("wren", user_id=user, name=user)
    stored = {
        user: [opened[user]["session_id"].partition(".")[0] for opened in (before, after)]
        for user in before
    }
    assert stored["bo"][0] == stored["bo"][1]
    assert stored["ana"][0] != stored["ana"][1]


# Settings that players may change.


@asynccontextmanager
async def player(start: StartServer, **settings: Any) -> AsyncIterator[Ana]:
    """Start a server with an open session of Ana, who has a player's token."""
    async with scripted_model(Script(background=background_answer)) as model:
        server = await start(llm_url=model.url, auth_secret=SECRET, http_per_s=1e6, **settings)
        client = await server.connect()
        opened = await client.open_session("wren", token=token(sub="ana"))
        headers = {"authorization": f"Bearer {token(sub='ana')}"}
        base = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers=headers) as http:
            connected = Ana(server, model, client, int(opened["relationship_id"]), http)
            await connected.say("I promise to remember the red door")
            yield connected


# By setting: a value beyond the operator's bound, and one that is allowed.
_OUT_OF_BOUNDS: dict[str, tuple[Any, Any]] = {
    "pause_ms": (100, 600),
    "eager": (True, False),
    "significance": ({"model": True}, {"phrases": {"rain": 0.8}, "model": False}),
    "significance_threshold": (0.1, 0.5),
    "recall_gate": (False, True),
    "recall_min_score": (0.05, 0.2),
    "recall_min_share": (0.2, 0.8),
    "recall_limit": (11, 3),
    "layers_off": (["topics"], ["topics", "hot"]),
    "layers_share": (0.5, 0.1),
    "context_tokens": (1_000_000, 8000),
    "working_tokens": (1_000_000, 6000),
    "retention_days": ({"hot": 90}, {"vault": 20, "hot": 3}),
    "llm_max_tokens": (100_000, 100),
    "llm_temperature": (2.5, 1.9),
    "recall_any_age": ("yes", True),
    "memory_max_age_days": (1e300, 30),
    "speaks_first": ("no", False),
}
_OPERATOR_SETTINGS = {
    "eager": False,
    "layers_off": ["hot"],
    "retention_days": {"vault": 30, "all": 60},
}


async def test_players_may_change_some_settings_within_the_operators_bounds(
    start: StartServer,
) -> None:
    """For the relationship and for a turn; errors name the setting."""
    assert set(_OUT_OF_BOUNDS) == set(PLAYER_BOUNDS)
    async with player(start, **_OPERATOR_SETTINGS) as a:
        for name, (beyond, allowed) in _OUT_OF_BOUNDS.items():
            response = await a.patch({name: beyond})
            assert response.status_code == 400, name
            assert response.json()["error"]["param"].startswith(f"settings.{name}")
            response = await a.patch({name: allowed})
            assert response.status_code == 200, response.text
        for name in set(SETTING_NAMES) - set(PLAYER_BOUNDS):
            row = TABLE[name]
            for value in (*row.values.values(), None):
                response = await a.patch({name: value})
                assert response.status_code == 400, name
                assert response.json()["error"]["param"].startswith(f"settings.{name}")
        assert (await a.patch(None)).status_code == 200
        for name in SETTING_NAMES:
            beyond = (
                _OUT_OF_BOUNDS[name][0]
                if name in _OUT_OF_BOUNDS
                else [*TABLE[name].values.values()][-1]
            )
            message = {"type": "message.send", "id": name, "text": "Hello"}
            await a.client.send_raw(message | {"settings": {name: beyond}})
            error = (await a.client.expect("error"))["error"]
            assert error["param"].startswith(f"settings.{name}"), error
        assert len(a.model.script.player_requests) == 1


async def test_settings_of_a_message_may_exceed_those_of_its_user(start: StartServer) -> None:
    """Up to the operator's bounds: the narrowest level wins, also if it relaxes a wider one."""
    async with player(start) as a:
        chosen = {"recall_limit": 3, "llm_max_tokens": 50, "context_tokens": 2000,
                  "recall_min_score": 0.5, "layers_off": ["hot"], "recall_gate": True}  # fmt: skip
        assert (await a.patch(chosen)).status_code == 200
        wider = {"recall_limit": 10, "llm_max_tokens": 400, "context_tokens": 16_384,
                 "recall_min_score": 0.1, "layers_off": [], "recall_gate": True}  # fmt: skip
        for name, value in wider.items():
            message = {"type": "message.send", "id": name, "text": "What is red?"}
            await a.client.send_raw(message | {"settings": {name: value}})
            response = await a.client.expect("message.accepted", "error")
            assert response["type"] == "message.accepted", response
            await a.client.expect_all("response.done", "memory.stored")
            if name == "llm_max_tokens":
                assert a.model.script.player_requests[-1]["max_tokens"] == 400


async def test_an_error_about_a_bound_states_it(start: StartServer) -> None:
    """And who has set it."""
    async with player(start) as a:
        message = (await a.patch({"context_tokens": 1_000_000})).json()["error"]["message"]
        assert message == "settings.context_tokens: expected at most 16384, which is the operator's"


async def test_later_bounds_of_the_operator_limit_earlier_choices_of_players(
    start: StartServer,
) -> None:
    """The choices are kept, and apply again once the bounds permit them."""
    async with player(start) as a:
        admin = {"authorization": f"Bearer {token(sub='op', scopes=['admin'])}"}
        chosen = {"context_tokens": 9000, "layers_off": ["topics"], "recall_limit": 2}
        await a.patch(chosen)
        a.http.headers.update(admin)
        await a.put({"context_tokens": 4000, "layers_off": ["hot"]})
        layers = a.policy.layers
        assert (layers.context_tokens, sorted(layers.off)) == (4000, ["hot", "topics"])
        config = await a.config()
        assert config["context_tokens"] == {"value": 4000, "from": "companion"}
        assert config["recall_limit"] == {"value": 2, "from": "relationship"}
        await a.put({})
        assert a.policy.layers.context_tokens == 9000


async def test_the_operator_may_raise_a_bound_for_one_relationship(start: StartServer) -> None:
    """That replaces the user's value, and is the bound from then on."""
    async with player(start) as a:
        player_headers = dict(a.http.headers)
        await a.patch({"llm_max_tokens": 50})
        a.http.headers.update({"authorization": f"Bearer {token(sub='op', scopes=['admin'])}"})
        response = await a.patch({"llm_max_tokens": 900, "session_hours": 2})
        assert response.status_code == 200, response.text
        assert a.policy.chat_model.max_tokens == 900
        a.http.headers.update(player_headers)
        assert (await a.patch({"llm_max_tokens": 901})).status_code == 400
        assert (await a.patch({"llm_max_tokens": 800})).status_code == 200
        assert a.policy.chat_model.max_tokens == 800
        assert (await a.patch({"llm_max_tokens": None})).status_code == 200
        assert a.policy.chat_model.max_tokens == 900
        path = f"/v1/relationships/{a.relationship}/context?draft={quote('And now?')}"
        assert (await a.http.get(path)).status_code == 200
