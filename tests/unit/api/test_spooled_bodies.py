"""Large answers: made one at a time, handed out from files."""

import asyncio
import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from foremind.api.spooled_bodies import SpooledResponses, write_json
from foremind.domain.errors import Overloaded, RateLimited
from foremind.runtime.metrics import Metrics


class Written(msgspec.Struct):
    """Something to be written."""

    name: str
    numbers: list[int]
    pairs: list[tuple[str, float | None]]
    inner: dict[str, list[int]]


@given(
    st.builds(
        Written,
        st.text(),
        st.lists(st.integers(0, 9), max_size=350),
        st.lists(st.tuples(st.text(), st.none()), max_size=3),
        st.dictionaries(st.text(), st.lists(st.integers(0, 9))),
    )
)
def test_what_is_written_in_portions_is_what_would_be_at_once(content: Written) -> None:
    """To the byte."""
    file = io.BytesIO()
    asyncio.run(write_json(content, file))
    assert file.getvalue() == msgspec.json.encode(content)


async def taken(answers: SpooledResponses, size: int = 10, user: str = "ana") -> list[Message]:
    """What a reader is sent."""
    sent: list[Message] = []

    async def content() -> Written:
        return Written("x" * size, [], [], {})

    async def send(message: Message) -> None:
        sent.append(message)

    response = await answers.answer(user, content, {"x-name": "y"})
    await response({}, None, send)  # type: ignore[arg-type]
    return sent


async def test_an_answer_says_how_long_it_is_and_comes_in_parts() -> None:
    """And is gone afterwards."""
    answers = SpooledResponses(1_000_000, Metrics())
    start, *parts = await taken(answers, 400_000)
    body = b"".join(part["body"] for part in parts)
    assert msgspec.json.decode(body, type=Written).name == "x" * 400_000
    headers = dict(start["headers"])
    assert headers[b"content-length"] == str(len(body)).encode()
    assert (headers[b"content-type"], headers[b"x-name"]) == (b"application/json", b"y")
    assert max(len(part["body"]) for part in parts) == 65_536
    assert answers.held == 0


async def test_a_user_reads_two_at_once_and_all_together_so_many_bytes() -> None:
    """Whoever is refused is told to come back, and may once somebody has read; it is counted."""
    metrics = Metrics()
    answers = SpooledResponses(1000, metrics)

    async def content() -> Written:
        return Written("x" * 300, [], [], {})

    async def send(_: Message) -> None: ...

    first, second = [await answers.answer("ana", content, {}) for _ in range(2)]
    with pytest.raises(RateLimited):
        await answers.answer("ana", content, {})
    with pytest.raises(Overloaded):
        await answers.answer("bo", content, {})
    for reason in ("exports_of_user", "exports"):
        counted = metrics.registry.get_sample_value("foremind_refused_total", {"reason": reason})
        assert counted == 1, reason
    await first({}, None, send)  # type: ignore[arg-type]
    third = await answers.answer("bo", content, {})
    for each in (second, third):
        await each({}, None, send)  # type: ignore[arg-type]


async def test_what_cannot_be_made_leaves_nothing_behind() -> None:
    """Its user may ask again."""
    answers = SpooledResponses(1000, Metrics())

    async def content() -> Written:
        raise KeyError

    for _ in range(5):
        with pytest.raises(KeyError):
            await answers.answer("ana", content, {})
    assert await taken(answers)
