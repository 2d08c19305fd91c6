"""What request bodies hold, and how large answers are handed over."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from foremind.domain.errors import Overloaded
from foremind.gateway.transport.body_limits import BodyBudget
from foremind.runtime.metrics import Metrics


async def test_a_body_counts_until_its_request_is_answered() -> None:
    """Whether it was read whole or not; one too many is refused."""
    go_on = asyncio.Event()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await go_on.wait()

    async def send(_: Message) -> None: ...

    def parts(number: int) -> Receive:
        left = [True] * (number - 1) + [False]

        async def receive() -> Message:
            return {"type": "http.request", "body": bytes(100), "more_body": left.pop(0)}

        return receive

    metrics = Metrics()
    bounded = BodyBudget(app, 1000, metrics)
    first = asyncio.create_task(bounded({"type": "http"}, parts(7), send))
    await asyncio.sleep(0)
    assert bounded.held == 700
    with pytest.raises(Overloaded):
        await bounded({"type": "http"}, parts(4), send)
    assert bounded.held == 700
    counted = {"reason": "bodies"}
    assert metrics.registry.get_sample_value("foremind_refused_total", counted) == 1
    go_on.set()
    await first
    assert bounded.held == 0


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 200_000])
async def test_a_large_answer_is_handed_over_in_slices(size: int) -> None:
    """The same bytes, and the last says that it is."""
    body = bytes(range(256)) * (size // 256 + 1)
    sent: list[Message] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body[:size]})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await BodyBudget(app, 200_000, Metrics())({"type": "http"}, receive, send)
    assert sent.pop(0)["status"] == 200
    assert b"".join(bytes(each["body"]) for each in sent) == body[:size]
    assert max(len(each["body"]) for each in sent) <= 65_536
    assert [each.get("more_body", False) for each in sent] == [True] * (len(sent) - 1) + [False]


async def test_what_waits_to_be_read_is_bounded() -> None:
    """Who would be too much is told to come back; small answers are always given."""
    metrics = Metrics()
    read = asyncio.Event()
    sent: list[Message] = []

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(scope["size"])})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def unread(message: Message) -> None:
        if message["type"] == "http.response.body":
            await read.wait()

    async def send(message: Message) -> None:
        sent.append(message)

    bounded = BodyBudget(app, 200_000, metrics)
    first = asyncio.create_task(bounded({"type": "http", "size": 150_000}, receive, unread))
    await asyncio.sleep(0)
    assert bounded.unread == 150_000
    for size, status in ((70_000, 503), (60_000, 200)):
        sent.clear()
        await bounded({"type": "http", "size": size}, receive, send)
        assert sent[0]["status"] == status
    counted = {"reason": "answers"}
    assert metrics.registry.get_sample_value("foremind_refused_total", counted) == 1
    read.set()
    await first
    assert bounded.unread == 0
    sent.clear()
    await bounded({"type": "http", "size": 70_000}, receive, send)
    assert sent[0]["status"] == 200
