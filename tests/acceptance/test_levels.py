"""Settings of the server, a companion, a relationship and a turn: what is shown is what acts."""

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

from foremind.client import Client
from foremind.domain.companion import CompanionFile, CompanionSettings
from foremind.domain.policy import Policy, policy_for
from foremind.domain.setting_levels import OF_A_TURN, OPERATORS, PLAYERS
from foremind.domain.settings import Settings, load_settings
from foremind.gateway.protocol.messages import MessageSend
from foremind.gateway.session import Session
from foremind.retrieval.embedding.conversion import ConvertedEncoder
from foremind.testing.background_answers import curate
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.levels import Row, rows
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually
from tests.unit.auth.test_access_tokens import SECRET, token

NAMES = CompanionSettings.__struct_fields__
TABLE = rows(("http://a/v1", "http://b/v1"), ("a.json", "b.json"))


@dataclass
class Ana:
    """A server with a model, a session of Ana's that stays open, and requests about her."""

    server: RunningServer
    model: ScriptedModel
    client: Client
    relationship: int
    http: httpx2.AsyncClient

    @property
    def session(self) -> Session:
        """Her session."""
        (found,) = self.server.app.registry._sessions
        return found

    @property
    def policy(self) -> Policy:
        """By what her session goes."""
        return self.session._terms.policy

    async def put(self, settings: object, persona: str = "P.") -> httpx2.Response:
        """Change the companion."""
        body = {"name": "Wren", "persona": persona, "settings": settings}
        return await self.http.put("/v1/admin/companions/wren?user=ana", json=body)

    async def patch(self, settings: object) -> httpx2.Response:
        """Change the relationship's own settings."""
        path = f"/v1/relationships/{self.relationship}/config?user=ana"
        return await self.http.patch(path, content=json.dumps({"settings": settings}))

    async def config(self) -> Any:
        """What is shown as in force."""
        path = f"/v1/relationships/{self.relationship}/config?user=ana"
        return (await self.http.get(path)).json()

    async def say(self, text: str, settings: object = None, **names: str) -> dict[str, Any]:
        """Send a message; return what came of it by type."""
        told = {"type": "message.send", "id": names.get("id", text), "text": text}
        await self.client.send_raw(told | ({} if settings is None else {"settings": settings}))
        return await self.client.expect_all("message.accepted", "response.done", "memory.stored")

    async def elsewhere(self) -> list[Policy]:
        """By what the background goes: judging a turn, and curating."""
        services = self.session._services
        turn_id = (await services.turns.recent(self.relationship, 1))[0].id
        turn = await self.server.app.core.memories.turn(self.relationship, turn_id)
        bond = await services.curation._due.bond(self.relationship)
        assert turn is not None and bond is not None
        work = services.curation._steps.work(bond)
        judged = services.rememberer.policy_of(turn)
        assert work.policy == judged.layers
        assert work.server is not None
        assert (work.server.options.model, work.server.options.address.url) == (
            judged.voice.model,
            judged.voice.url,
        )
        return [judged]


@asynccontextmanager
async def ana(start: StartServer, **settings: Any) -> AsyncIterator[Ana]:
    """Ana, who has said something."""
    async with scripted_model(Script(background=curate)) as model:
        server = await start(**({"llm_url": model.url, "http_per_s": 1e6} | settings))
        client = await server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        base = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
            found = Ana(server, model, client, int(opened["relationship_id"]), http)
            await found.say("I promise to remember the red door")
            yield found


def test_every_setting_has_a_row_and_a_level() -> None:
    """A new one fails here until it is in the table."""
    assert set(TABLE) == set(NAMES)
    assert {n for n, row in TABLE.items() if "server" in row.given} == {
        name for name in NAMES if name in Settings.model_fields
    }
    assert {n for n, row in TABLE.items() if "relationship" not in row.given} == OPERATORS
    assert {n for n, row in TABLE.items() if "turn" in row.given} == OF_A_TURN
    assert set(PLAYERS) <= set(NAMES) - OPERATORS


@pytest.mark.parametrize("name", [n for n in NAMES if "server" in TABLE[n].given])
def test_what_the_server_sets_acts(name: str) -> None:
    """Where nobody else sets it."""
    row = TABLE[name]
    policy = policy_for(CompanionSettings(), load_settings(**{name: row.given["server"]}))
    assert row.acts(policy) == row.wanted("server")
    assert row.acts(policy_for(CompanionSettings(), load_settings())) != row.wanted("server")


async def test_what_is_shown_as_in_force_is_what_acts(
    start: StartServer, model: ConvertedEncoder, settings: Settings, tmp_path: Path
) -> None:
    """Every setting, on every level and back, in a session that stays open and the background."""
    tokenizers = (str(tmp_path / "one.json"), str(tmp_path / "two.json"))
    (there, *_) = settings.models_dir.glob("**/tokenizer.json")
    for path in tokenizers:
        shutil.copy(there, path)
    async with ana(start, retention_days=TABLE["retention_days"].given["server"]) as a:
        table = rows((a.model.url, f"{a.model.url}/"), tokenizers)
        for name, row in table.items():
            before = row.acts(a.policy)
            await _set_and_taken_away(a, name, row)
            assert row.acts(a.policy) == before, name


async def _set_and_taken_away(a: Ana, name: str, row: Row) -> None:
    for level, setting in (("companion", a.put), ("relationship", a.patch)):
        if level not in row.given:
            continue
        answer = await setting({name: row.given[level]})
        assert answer.status_code == 200, (name, answer.text)
        await _holds(a, name, row, level)
    if "turn" in row.given:
        turn = MessageSend(id="x", text="x", settings={name: _raw(row.given["turn"])})
        policy = a.session._terms.policy_of(turn, player=False)
        assert row.acts(policy) == row.wanted("turn"), name
    if "relationship" in row.given:
        assert (await a.patch({name: None})).status_code == 200
        await _holds(a, name, row, "companion")
    assert (await a.put({name: None})).status_code == 200


async def _holds(a: Ana, name: str, row: Row, level: str) -> None:
    """What is wanted acts in the session and in the background, and is shown."""
    wanted = row.wanted(level)
    assert row.acts(a.policy) == wanted, (name, level)
    assert await a.elsewhere() == [a.policy], (name, level)
    shown = (await a.config()).get(name)
    if name in OPERATORS - {"shares_counts"}:
        assert shown is None
    elif name != "shares_counts":  # which is shown as what the user agreed to
        assert shown["from"] == level, name
        value = policy_for(_of({name: shown["value"]}), load_settings())
        assert row.acts(value) == wanted, (name, level)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _of(settings: dict[str, Any]) -> CompanionSettings:
    return msgspec.convert(settings, CompanionSettings)


async def test_a_turn_is_answered_by_its_own_settings(start: StartServer) -> None:
    """Temperature and length reach the model for that turn; the next one is as before."""
    async with ana(start) as a:
        await a.say("Tell me more", {"llm_temperature": 1.5, "llm_max_tokens": 17})
        await a.say("And more")
        asked = [(each["temperature"], each["max_tokens"]) for each in a.model.script.spoken]
        assert asked == [(0.8, 400), (1.5, 17), (0.8, 400)]


async def test_a_relationships_own_rules_judge_what_is_said(start: StartServer) -> None:
    """Phrases of its own beside the companion's, and its own threshold."""
    async with ana(start) as a:
        plain = {"learned": False, "phrases": {"xylophone": 0.9}}
        await a.put({"significance": plain})
        await a.patch({"significance": {"phrases": {"bassoon": 0.8}}})
        for word, score in (("xylophone", 0.9), ("bassoon", 0.8)):
            stored = (await a.say(f"the {word} stands here"))["memory.stored"]
            assert (stored["stored"], stored["significance"]) == (True, score)
        await a.patch({"significance_threshold": 0.85})
        stored = (await a.say("a bassoon fell over"))["memory.stored"]
        assert stored["stored"] is False


async def test_a_patch_changes_what_it_names(start: StartServer) -> None:
    """The rest stays; null takes away, a part of a setting too."""
    async with ana(start) as a:
        await a.patch({"recall_limit": 3, "retention_days": {"hot": 3, "vault": 4}})
        await a.patch({"pause_ms": 700, "retention_days": {"hot": None}})
        config = await a.config()
        assert (config["recall_limit"]["value"], config["pause_ms"]["value"]) == (3, 700)
        assert config["retention_days"] == {"value": {"vault": 4.0}, "from": "relationship"}
        await a.patch({"recall_limit": None})
        assert (await a.config())["recall_limit"] == {"value": 10, "from": "server"}
        await a.patch(None)
        assert "relationship" not in {
            each["from"]
            for name, each in (await a.config()).items()
            if name in set(NAMES) - {"shares_counts"}
        }


async def test_an_edited_companion_speaks_from_the_next_message_on(start: StartServer) -> None:
    """In sessions that are open, also of other processes, and not from what was prepared before."""
    async with ana(start, eager=False, pause_ms=50) as a:
        far = await start(llm_url=a.model.url, eager=False, pause_ms=50)
        client = await far.session("bo")
        for user in (a.client, client):
            await user.send_raw({"type": "draft.update", "text": "What of the red door?"})
            await user.expect("context.ready")
        await a.put({"llm_model": "another"}, persona="You are a parrot.")
        done = await a.say("What of the red door?")
        spoken = a.model.script.spoken[-1]
        assert "You are a parrot." in spoken["messages"][0]["content"]
        assert spoken["model"] == "another"
        assert done["message.accepted"]["context"] != "hit"
        (session,) = far.app.registry._sessions
        await eventually(lambda: session._terms.companion.persona == "You are a parrot.")
        await client.send("What of the red door?")
        accepted = await client.expect("message.accepted")
        await client.expect("response.done")
        assert accepted["context"] != "hit"
        assert "parrot" in a.model.script.spoken[-1]["messages"][0]["content"]


async def test_what_is_changed_past_the_server_is_heard_too(start: StartServer) -> None:
    """As `foremind companions put` does, and after a lost line to the database."""
    async with ana(start) as a:
        companions = a.server.app.core.companions
        await companions.put(CompanionFile("wren", "Wren", "You are a crow."))
        await eventually(lambda: a.session._terms.companion.persona == "You are a crow.")
        current = a.session._services.current
        current._companions._held[a.session._terms.companion.id].value = a.session._terms.companion
        await current.forget()
        assert a.session._terms._shared_companion.value.settings == CompanionSettings()


async def test_a_session_lives_as_long_as_its_relationship_says(start: StartServer) -> None:
    """Not as long as the companion's other sessions, which go on after two hours."""
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
        answer = await http.patch(path, json={"settings": {"session_hours": 1}})
    assert answer.status_code == 200
    await clock.leap(7200)
    after = {}
    for user in before:
        client = await server.connect()
        after[user] = await client.open_session("wren", user_id=user, name=user)
    assert after["bo"]["session_id"] == before["bo"]["session_id"]
    assert after["ana"]["session_id"] != before["ana"]["session_id"]


# What players may set.


@asynccontextmanager
async def player(start: StartServer, **settings: Any) -> AsyncIterator[Ana]:
    """Ana with a player's token; `admin` is another client's."""
    async with scripted_model(Script(background=curate)) as model:
        server = await start(llm_url=model.url, auth_secret=SECRET, http_per_s=1e6, **settings)
        client = await server.connect()
        opened = await client.open_session("wren", token=token(sub="ana"))
        headers = {"authorization": f"Bearer {token(sub='ana')}"}
        base = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE, headers=headers) as http:
            found = Ana(server, model, client, int(opened["relationship_id"]), http)
            await found.say("I promise to remember the red door")
            yield found


# Beyond what the operator has, and the nearest that is allowed.
_BEYOND: dict[str, tuple[Any, Any]] = {
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
    "retention_days": ({"vault": 40}, {"vault": 20, "hot": 3}),
    "llm_max_tokens": (100_000, 100),
    "llm_temperature": (2.5, 1.9),
    "recall_any_age": ("yes", True),
    "memory_max_age_days": (1e300, 30),
}
_OPERATORS_OWN = {"eager": False, "layers_off": ["hot"], "retention_days": {"vault": 30}}


async def test_players_may_set_a_short_list_within_what_the_operator_has(
    start: StartServer,
) -> None:
    """For the relationship and for a turn; whatever else is refused by its name and bound."""
    assert set(_BEYOND) == set(PLAYERS)
    async with player(start, **_OPERATORS_OWN) as a:
        for name, (beyond, allowed) in _BEYOND.items():
            answer = await a.patch({name: beyond})
            assert answer.status_code == 400, name
            assert answer.json()["error"]["param"].startswith(f"settings.{name}")
            answer = await a.patch({name: allowed})
            assert answer.status_code == 200, answer.text
        for name in set(NAMES) - set(PLAYERS):
            row = TABLE[name]
            for value in (*row.given.values(), None):
                answer = await a.patch({name: value})
                assert answer.status_code == 400, name
                assert answer.json()["error"]["param"].startswith(f"settings.{name}")
        assert (await a.patch(None)).status_code == 200
        for name in NAMES:
            beyond = _BEYOND[name][0] if name in _BEYOND else [*TABLE[name].given.values()][-1]
            message = {"type": "message.send", "id": name, "text": "Hello"}
            await a.client.send_raw(message | {"settings": {name: beyond}})
            error = (await a.client.expect("error"))["error"]
            assert error["param"].startswith(f"settings.{name}"), error
        assert len(a.model.script.spoken) == 1


async def test_a_turn_may_go_beyond_what_its_user_chose(start: StartServer) -> None:
    """Up to what the operator has: the narrowest level wins, also where it takes back a wider."""
    async with player(start) as a:
        chosen = {"recall_limit": 3, "llm_max_tokens": 50, "context_tokens": 2000,
                  "recall_min_score": 0.5, "layers_off": ["hot"], "recall_gate": True}  # fmt: skip
        assert (await a.patch(chosen)).status_code == 200
        wider = {"recall_limit": 10, "llm_max_tokens": 400, "context_tokens": 16_384,
                 "recall_min_score": 0.1, "layers_off": [], "recall_gate": True}  # fmt: skip
        for name, value in wider.items():
            message = {"type": "message.send", "id": name, "text": "What is red?"}
            await a.client.send_raw(message | {"settings": {name: value}})
            answer = await a.client.expect("message.accepted", "error")
            assert answer["type"] == "message.accepted", answer
            await a.client.expect_all("response.done", "memory.stored")
            if name == "llm_max_tokens":
                assert a.model.script.spoken[-1]["max_tokens"] == 400


async def test_a_bound_is_named(start: StartServer) -> None:
    """With whose it is."""
    async with player(start) as a:
        told = (await a.patch({"context_tokens": 1_000_000})).json()["error"]["message"]
        assert told == "settings.context_tokens: expected at most 16384, which is the operator's"


async def test_what_the_operator_chooses_later_bounds_what_players_chose_before(
    start: StartServer,
) -> None:
    """And nothing else of it: it holds again where there is room for it."""
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


async def test_the_operator_may_set_more_for_a_relationship(start: StartServer) -> None:
    """It takes the place of what the user set, and bounds it from then on."""
    async with player(start) as a:
        mine = dict(a.http.headers)
        await a.patch({"llm_max_tokens": 50})
        a.http.headers.update({"authorization": f"Bearer {token(sub='op', scopes=['admin'])}"})
        answer = await a.patch({"llm_max_tokens": 900, "session_hours": 2})
        assert answer.status_code == 200, answer.text
        assert a.policy.voice.max_tokens == 900
        a.http.headers.update(mine)
        assert (await a.patch({"llm_max_tokens": 901})).status_code == 400
        assert (await a.patch({"llm_max_tokens": 800})).status_code == 200
        assert a.policy.voice.max_tokens == 800
        assert (await a.patch({"llm_max_tokens": None})).status_code == 200
        assert a.policy.voice.max_tokens == 900
        path = f"/v1/relationships/{a.relationship}/context?draft={quote('And now?')}"
        assert (await a.http.get(path)).status_code == 200
