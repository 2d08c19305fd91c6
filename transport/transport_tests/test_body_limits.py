"""Byte limits on request bodies and large responses."""

import asyncio

import pytest

from fair_transport.body_limits import BodyBudget, Message, Receive, Scope, Send
from fair_transport.options import BodyRefused, Hooks


async def test_a_request_body_counts_until_the_response_is_complete() -> None:
    """Whether it was read entirely or not; a body that exceeds the limit is refused."""
    finish = asyncio.Event()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await finish.wait()

    async def send(_: Message) -> None: ...

    def chunks(count: int) -> Receive:
        more_body = [True] * (count - 1) + [False]

        async def receive() -> Message:
            return {"type": "http.request", "body": bytes(100), "more_body": more_body.pop(0)}

        return receive

    refused: list[str] = []
    hooks = Hooks(on_refused=refused.append)
    limited = BodyBudget(app, 1000, hooks)
    first = asyncio.create_task(limited({"type": "http"}, chunks(7), send))
    await asyncio.sleep(0)
    assert limited.request_bytes == 700
    with pytest.raises(BodyRefused):
        await limited({"type": "http"}, chunks(4), send)
    assert limited.request_bytes == 700
    assert refused == ["bodies"]
    finish.set()
    await first
    assert limited.request_bytes == 0


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 200_000])
async def test_a_large_response_is_sent_in_slices(size: int) -> None:
    """With the same content, and `more_body` false on the last slice."""
    body = bytes(range(256)) * (size // 256 + 1)
    sent: list[Message] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body[:size]})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await BodyBudget(app, 200_000, Hooks())({"type": "http"}, receive, send)
    assert sent.pop(0)["status"] == 200
    assert b"".join(bytes(message["body"]) for message in sent) == body[:size]
    assert max(len(message["body"]) for message in sent) <= 65_536
    more_body = [message.get("more_body", False) for message in sent]
    assert more_body == [True] * (len(sent) - 1) + [False]


async def test_large_responses_in_flight_are_limited() -> None:
    """What exceeds the limit is refused with 503; small responses are always sent."""
    refused: list[str] = []
    hooks = Hooks(on_refused=refused.append)
    client_reads = asyncio.Event()
    sent: list[Message] = []

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(scope["size"])})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def blocked_send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await client_reads.wait()

    async def send(message: Message) -> None:
        sent.append(message)

    limited = BodyBudget(app, 200_000, hooks)
    first = asyncio.create_task(limited({"type": "http", "size": 150_000}, receive, blocked_send))
    await asyncio.sleep(0)
    assert limited.response_bytes == 150_000
    for size, status in ((70_000, 503), (60_000, 200)):
        sent.clear()
        await limited({"type": "http", "size": size}, receive, send)
        assert sent[0]["status"] == status
    assert refused == ["answers"]
    client_reads.set()
    await first
    assert limited.response_bytes == 0
    sent.clear()
    await limited({"type": "http", "size": 70_000}, receive, send)
    assert sent[0]["status"] == 200
