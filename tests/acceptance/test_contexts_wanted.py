"""Whether `context.ready` is sent: as the client said last, and to whoever says nothing."""

from typing import Any

import pytest

from foremind_client import Client, Conversation, Identity
from tests.conftest import RunningServer, StartServer, eventually

_DRAFT = "What did I promise to bring tomorrow?"


def _prepared(server: RunningServer) -> float:
    """Return how many contexts were prepared."""
    found = server.app.core.runtime.metrics.prepared.collect()
    samples = [sample for metric in found for sample in metric.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


async def _types_of_events(client: Client, *until: str) -> list[str]:
    types: list[str] = []
    while not types or types[-1] not in until:
        types.append((await client.next_event())["type"])
    return types


@pytest.mark.parametrize(
    ("opened_with", "updates", "wanted"),
    [
        ({}, [], True),
        ({"contexts": True}, [], True),
        ({"contexts": False}, [], False),
        ({}, [False], False),
        ({"contexts": False}, [True], True),
        ({"contexts": False}, [True, False], False),
    ],
)
async def test_context_ready_is_sent_to_clients_that_want_it(
    start: StartServer, opened_with: dict[str, Any], updates: list[bool], *, wanted: bool
) -> None:
    """Before Enter and at Enter; the context is prepared all the same."""
    server = await start(pause_ms=50)
    client = await server.connect()
    await client.open_session("wren", user_id="ana", name="Ana", **opened_with)
    for contexts in updates:
        await client.send_raw({"type": "session.update", "contexts": contexts})
        await client.expect("session.updated")
    await client.draft(_DRAFT)
    await eventually(lambda: _prepared(server) > 0)
    await client.send(_DRAFT)
    types = await _types_of_events(client, "message.accepted")
    assert ("context.ready" in types) == wanted
    await client.expect("response.done")
    await client.send("And what was it that I forgot?")
    types = await _types_of_events(client, "response.done")
    assert ("context.ready" in types) == wanted


async def test_a_client_that_resumes_states_it_anew(start: StartServer) -> None:
    """As in any `session.open`: one that says nothing is sent contexts."""
    server = await start(pause_ms=50)
    client = await server.connect()
    opened = await client.open_session("wren", user_id="ana", name="Ana", contexts=False)
    resumed = await server.connect()
    resume = (opened["session_id"], opened["seq"])
    again = await resumed.open_session("wren", user_id="ana", name="Ana", resume=resume)
    assert again["resumed"]
    await resumed.draft(_DRAFT)
    assert (await resumed.expect("context.ready"))["draft"] == _DRAFT


@pytest.mark.parametrize("contexts", ["no", 0, {}])
async def test_anything_else_is_an_error_that_names_the_field(
    start: StartServer, contexts: object
) -> None:
    """And the session goes on as it was."""
    client = await (await start(pause_ms=50)).session()
    await client.send_raw({"type": "session.update", "contexts": contexts})
    assert (await client.expect("error"))["error"]["param"] == "contexts"
    await client.draft(_DRAFT)
    await client.expect("context.ready")


@pytest.mark.parametrize("contexts", [False, True])
async def test_the_python_client_asks_for_it_where_it_is_used(
    start: StartServer, *, contexts: bool
) -> None:
    """By default it is not."""
    server = await start(pause_ms=50)
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    types: list[str] = []
    async with Conversation(url, Identity("wren", "ana", "Ana"), contexts=contexts) as wren:
        wren.type(_DRAFT)
        await eventually(lambda: _prepared(server) > 0)
        wren.say(_DRAFT)
        async for event in wren.events():
            types.append(event["type"])
            if event["type"] == "response.done":
                break
    assert ("context.ready" in types) == contexts
