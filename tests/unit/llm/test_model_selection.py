"""Clients of model servers: shared, bounded, closed when idle, and which key they send."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from foremind.app.configuration import load_settings
from foremind.domain.policy import ChatModelPolicy, policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.llm import model_selection as module
from foremind.llm.model_selection import ChatModels
from foremind_eval.doubles.model_server import Script, scripted_model

SERVER = load_settings(llm_url="http://model/v1", llm_key="the server's")
POLICY = policy_for(CompanionSettings(), SERVER).chat_model


def client_of(chat_models: ChatModels, policy: ChatModelPolicy) -> Any:
    """The HTTP client of a policy's chat model."""
    server = chat_models.model_server_for(policy)
    assert server is not None
    return server._client


async def test_one_server_has_one_client() -> None:
    """For all temperatures, lengths and models; another address or key has its own."""
    chat_models = ChatModels(SERVER)
    first = client_of(chat_models, POLICY)
    for number in range(1000):
        other = replace(POLICY, temperature=number / 500, max_tokens=number + 1, model=f"m{number}")
        assert client_of(chat_models, other) is first
    other_client = client_of(chat_models, replace(POLICY, url="http://other/v1"))
    assert other_client is not first and other_client.slots is not first.slots
    assert len(chat_models._clients) == 2
    await chat_models.close()


async def test_clients_are_bounded_and_closed_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least recently used is evicted first; its replies in flight are not interrupted."""
    monkeypatch.setattr(module, "_MAX_CLIENTS", 3)
    hold = asyncio.Event()
    async with scripted_model(Script(hold_before=hold, hold_after=1)) as model:
        chat_models = ChatModels(SERVER)
        policy = replace(POLICY, url=model.url)
        server, client = chat_models.model_server_for(policy), client_of(chat_models, policy)
        assert server is not None
        async with aclosing(server.write([{"role": "user", "content": "Hi"}], 9, 0.5)) as pieces:
            reply = [await anext(pieces)]
            for number in range(10):
                client_of(chat_models, replace(POLICY, url=f"http://model{number}/v1"))
            assert len(chat_models._clients) == 3 and client not in chat_models._clients.values()
            hold.set()
            reply += [piece async for piece in pieces]
        assert reply == ["Hello", " there", "."]
        await chat_models._closing.finish()
        assert client._connections is None
        again = [piece async for piece in server.write([{"role": "user", "content": "Hi"}], 9, 0.5)]
        assert again == reply
        await chat_models._closing.finish()
        assert client._connections is None
        await chat_models.close()
        assert not chat_models._clients


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda p: p, "the server's"),
        (lambda p: replace(p, url="http://other/v1"), None),
        (lambda p: replace(p, key_env="FOREMIND_LLM_KEY_MARA"), "mara's"),
        (lambda p: replace(p, url="http://other/v1", key_env="FOREMIND_LLM_KEY_MARA"), "mara's"),
        (lambda p: replace(p, key_env="FOREMIND_LLM_KEY_NOBODY"), None),
        (lambda p: replace(p, url="http://other/v1", key_env="FOREMIND_AUTH_SECRET"), None),
        (lambda p: replace(p, key_env="FOREMIND_LLM_KEY"), None),
    ],
)
def test_a_key_goes_only_where_it_belongs(
    change: Callable[[ChatModelPolicy], ChatModelPolicy],
    key: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server's to the server's own address, a companion's to the companion's."""
    monkeypatch.setenv("FOREMIND_AUTH_SECRET", "the secret that signs")
    monkeypatch.setenv("FOREMIND_LLM_KEY", "the server's")
    monkeypatch.setenv("FOREMIND_LLM_KEY_MARA", "mara's")
    assert client_of(ChatModels(SERVER), change(POLICY))._address.key == key


@pytest.mark.parametrize(
    "name", ["FOREMIND_AUTH_SECRET", "FOREMIND_LLM_KEY", "PATH", "FOREMIND_LLM_KEY_A\n", ""]
)
def test_no_other_variable_can_be_named(name: str) -> None:
    """Through no interface: all of them decode settings as this type."""
    with pytest.raises(msgspec.ValidationError, match="llm_key_env"):
        msgspec.convert({"llm_key_env": name}, CompanionSettings)
