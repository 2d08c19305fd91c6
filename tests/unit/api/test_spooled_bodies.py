"""Large responses: built one at a time, streamed from files."""

import asyncio
import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from foremind.api.json_bodies import SpooledResponses, write_json
from foremind.domain.errors import Overloaded, RateLimited
from foremind.runtime.metrics import Metrics


class Content(msgspec.Struct):
    """Something to be written as JSON."""

    name: str
    numbers: list[int]
    pairs: list[tuple[str, float | None]]
    inner: dict[str, list[int]]


@given(
    st.builds(
        Content,
        st.text(),
        st.lists(st.integers(0, 9), max_size=350),
        st.lists(st.tuples(st.text(), st.none()), max_size=3),
        st.dictionaries(st.text(), st.lists(st.integers(0, 9))),
    )
)
def test_writing_in_batches_equals_encoding_at_once(content: Content) -> None:
    """Byte for byte."""
    file = io.BytesIO()
    asyncio.run(write_json(content, file))
    assert file.getvalue() == msgspec.json.encode(content)


async def receive_response(
    responses: SpooledResponses, size: int = 10, user: str = "ana"
) -> list[Message]:
    """The messages of a response."""
    sent: list[Message] = []

    async def build() -> Content:
        return Content("x" * size, [], [], {})

    async def send(message: Message) -> None:
        sent.append(message)

    response = await responses.respond(user, build, {"x-name": "y"})
    await response({}, None, send)  # type: ignore[arg-type]
    return sent


async def test_a_response_has_its_length_and_is_sent_in_chunks() -> None:
    """And occupies nothing afterwards."""
    responses = SpooledResponses(1_000_000, Metrics())
    start, *chunks = await receive_response(responses, 400_000)
    body = b"".join(chunk["body"] for chunk in chunks)
    assert msgspec.json.decode(body, type=Content).name == "x" * 400_000
    headers = dict(start["headers"])
    assert headers[b"content-length"] == str(len(body)).encode()
    assert (headers[b"content-type"], headers[b"x-name"]) == (b"application/json", b"y")
    assert max(len(chunk["body"]) for chunk in chunks) == 65_536
    assert responses.pending_bytes == 0


async def test_responses_in_flight_are_limited_per_user_and_in_total_bytes() -> None:
    """Refusals are counted, and end once a response has been read."""
    metrics = Metrics()
    responses = SpooledResponses(1000, metrics)

    async def build() -> Content:
        return Content("x" * 300, [], [], {})

    async def send(_: Message) -> None: ...

    first, second = [await responses.respond("ana", build, {}) for _ in range(2)]
    with pytest.raises(RateLimited):
        await responses.respond("ana", build, {})
    with pytest.raises(Overloaded):
        await responses.respond("bo", build, {})
    for reason in ("exports_of_user", "exports"):
        count = metrics.registry.get_sample_value("foremind_refused_total", {"reason": reason})
        assert count == 1, reason
    await first({}, None, send)  # type: ignore[arg-type]
    third = await responses.respond("bo", build, {})
    for response in (second, third):
        await response({}, None, send)  # type: ignore[arg-type]


async def test_a_response_that_cannot_be_built_occupies_nothing() -> None:
    """Its user may try again."""
    responses = SpooledResponses(1000, Metrics())

    async def build() -> Content:
        raise KeyError

    for _ in range(5):
        with pytest.raises(KeyError):
            await responses.respond("ana", build, {})
    assert await receive_response(responses)
