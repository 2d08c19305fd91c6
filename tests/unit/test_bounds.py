"""Every cache and queue has a bound: filled far past it, it holds no more; none is without."""

import ast
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from foremind.domain.errors import ForemindError
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.settings import load_settings
from foremind.gateway.pending_session import PendingSession
from foremind.gateway.replay_buffer import ReplayBuffer
from foremind.gateway.transport.admission import Admission, AdmittedConnection
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.layout import Message
from foremind.llm.slots import SlotPool
from foremind.retrieval.embedding.priority_queue import EmbeddingQueue, Priority
from foremind.runtime.metrics import Metrics
from foremind.storage.fair_queue import FairQueue
from foremind.text import packed_terms, tokenization
from tests.conftest import ROOT

_PACKAGE = ROOT / "server" / "foremind"
#: What has no bound of its own, and why it needs none.
_WITHOUT = {
    "evaluation/benchmarks/crowd.py: Queue": "no part of the server",
    "retrieval/embedding/priority_queue.py: deque": "of one owner; the queue counts all",
    "llm/response_format.py: cache": "by the shapes of answers that are asked for",
    "llm/answer_parsing.py: cache": "by the shapes of answers that are asked for",
    "llm/slots.py: deque": "one of each open session or background task, which are bounded",
    "llm/prompt/token_counter.py: cache": "by the tokenizers that operators name",
    "domain/setting_bounds.py: cache": "by the names of settings",
    "storage/fair_queue.py: deque": "one owner's tickets, counted where they are taken in",
    "storage/named_queries.py: cache": "it has no arguments",
}


def replayed() -> int:
    """Bytes of events kept for who comes back."""
    kept = ReplayBuffer(100, 5000, 60.0)
    for number in range(1, 1000):
        kept.add(number, b"x" * 90, 0.0)
    return kept._bytes


def embedded() -> int:
    """Texts that wait to be embedded, of many users and all priorities."""
    queue: EmbeddingQueue[tuple[int, int]] = EmbeddingQueue(20, owner=lambda each: each[0])
    for number in range(500):
        with suppress(ForemindError):
            queue.push((number % 7, number), Priority(number % 4))
    return len(queue)


def waited() -> int:
    """Tickets of one owner in a line."""
    line: FairQueue[int] = FairQueue(2, 1, 5)
    for number in range(100):
        with suppress(ForemindError):
            line.ask("ana", number)
    return len(line._waiting["ana"])


def announced() -> int:
    """What is heard while a session is opened."""
    opening = PendingSession(cast("Any", None))
    for number in range(10_000):
        opening.announce(cast("Any", number))
    with pytest.raises(ForemindError):
        opening.check()
    return len(opening.take_heard())


def read_ahead() -> int:
    """Prompts that a model server's slots are taken to remember."""
    slots = SlotPool(3)
    for number in range(100):
        slots.asked([cast("Message", {"role": "user", "content": f"{number} and so on"})])
    return len(slots._prompts)


def asked() -> int:
    """Clients of model servers, one for each address."""
    voices = ChatModels(load_settings())
    for number in range(100):
        policy = ChatModelPolicy(
            url=f"http://{number}.example/v1", model="m", key_env=None, max_tokens=1,
            temperature=0.0, ahead="off",
        )  # fmt: skip
        voices.server_of(policy)
    return len(voices._clients)


class _Silent:
    """A connection that sends and never says who it is."""

    address = "203.0.113.7"

    def evict(self) -> None:
        """Go."""


def connected() -> int:
    """Bytes that all who have not said who they are hold."""
    admission = Admission(1000, 1000, lambda _: False, Metrics(), most_bytes=10_000)
    for _ in range(100):
        member: AdmittedConnection = _Silent()
        admission.enter(member)
        admission.heard(member, 900)
    return admission._bytes


def stemmed() -> int:
    """Words whose stems are remembered."""
    for number in range(21_000):
        tokenization.terms_of(f"word{number}")
    return tokenization._stem.cache_info().currsize


def hashed() -> int:
    """Words whose hashes are remembered."""
    for number in range(51_000):
        packed_terms.hash_of(f"word{number}")
    return packed_terms.hash_of.cache_info().currsize


@pytest.mark.parametrize(
    ("filled", "most"),
    [
        (replayed, 5000),
        (embedded, 20),
        (waited, 5),
        (announced, 4096),
        (read_ahead, 3),
        (asked, 32),
        (connected, 10_000),
        (stemmed, 20_000),
        (hashed, 50_000),
    ],
)
def test_filled_past_its_bound_it_holds_no_more(filled: Callable[[], int], most: int) -> None:
    """Nor much less: what is counted is what was filled."""
    assert most * 0.8 <= filled() <= most
    tokenization.forget_words()
    packed_terms.forget_hashes()


def boundless(path: Path) -> Iterator[str]:
    """Caches and queues of a module that are built without a bound."""
    for node in ast.walk(ast.parse(path.read_text())):
        decorators = getattr(node, "decorator_list", [])
        if any(isinstance(decorator, ast.Name) and decorator.id in ("cache", "lru_cache")
               for decorator in decorators):  # fmt: skip
            yield "cache"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        bound = bool(node.args) or any(
            keyword.arg in ("maxlen", "maxsize") for keyword in node.keywords
        )
        if name in ("Queue", "lru_cache", "LRUCache", "TTLCache") and not bound:
            yield name
        if name == "deque" and not any(keyword.arg == "maxlen" for keyword in node.keywords):
            yield name


def test_no_cache_or_queue_is_built_without_a_bound() -> None:
    """But for those that something else bounds; none is excused without need."""
    found = {
        f"{path.relative_to(_PACKAGE)}: {each}"
        for path in _PACKAGE.rglob("*.py")
        for each in boundless(path)
    }
    assert found == set(_WITHOUT)
