"""Every cache and queue is bounded, and stays within its bound when it is overfilled."""

import ast
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from fair_transport.admission import Admission, AdmittedConnection
from fair_transport.options import Hooks
from foremind.app.configuration import load_settings
from foremind.domain.announcements import MemoriesForgotten
from foremind.domain.errors import ForemindError
from foremind.domain.policy import ChatModelPolicy
from foremind.gateway.event_stream import ReplayBuffer
from foremind.gateway.session_registry import PendingSession
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.layout import Message
from foremind.llm.slots import SlotPool
from foremind.memory import scoring
from foremind.retrieval.embedding.service import EmbeddingQueue, Priority
from foremind.runtime import caches
from foremind.runtime.fair_queue import FairQueue
from foremind.text import tokenization
from foremind.text.languages import detection
from foremind.text.statements import extraction
from tests.conftest import ROOT

_PACKAGES = (
    ROOT / "server" / "foremind",
    ROOT / "clients" / "python" / "foremind_client",
    ROOT / "models" / "foremind_models",
    ROOT / "transport" / "fair_transport",
)
#: What has no bound of its own, and why it needs none.
_UNBOUNDED = {
    "retrieval/embedding/service.py: deque": "per owner; the queue counts all",
    "llm/openai_model.py: cache": "one entry for each response format",
    "llm/answer_parsing.py: cache": "one entry for each response format",
    "llm/slots.py: deque": "one entry for each session or background task, which are bounded",
    "llm/http_client.py: cache": "it has no arguments",
    "llm/prompt/token_counter.py: cache": "one entry for each configured tokenizer",
    "domain/user.py: cache": "it has no arguments",
    "memory/short_answers.py: cache": "one entry for each language",
    "text/time_words.py: cache": "one entry for each language",
    "text/pin_requests.py: cache": "it has no arguments",
    "text/statements/constructions.py: cache": "one entry for each row of the table",
    "text/statements/vocabulary.py: cache": "one entry for each of the module's lists",
    "domain/field_problems.py: cache": "one entry for each shape of a message or body",
    "runtime/fair_queue.py: deque": "one owner's tickets, counted when they are enqueued",
    "storage/named_queries.py: cache": "it has no arguments",
}


def replay_bytes() -> int:
    """Bytes of events kept for a reconnecting client."""
    buffer = ReplayBuffer(100, 5000, 60.0)
    for number in range(1, 1000):
        buffer.add(number, b"x" * 90, 0.0)
    return buffer._bytes


def queued_embeddings() -> int:
    """Texts waiting to be embedded, of several users and all priorities."""
    queue: EmbeddingQueue[tuple[int, int]] = EmbeddingQueue(20, owner=lambda text: text[0])
    for number in range(500):
        with suppress(ForemindError):
            queue.push((number % 7, number), Priority(number % 4))
    return len(queue)


def waiting_tickets() -> int:
    """Waiting tickets of one owner."""
    queue: FairQueue[int] = FairQueue(2, 1, 5)
    for number in range(100):
        with suppress(ForemindError):
            queue.enqueue("ana", number)
    return len(queue._waiting["ana"])


def pending_announcements() -> int:
    """Announcements received while a session is being opened."""
    opening = PendingSession(cast("Any", None))
    for number in range(10_000):
        opening.on_announcement(cast("Any", number))
    with pytest.raises(ForemindError):
        opening.check()
    return len(opening.take_announcements())


def slot_prompts() -> int:
    """Prompts that the slots of a model server are assumed to have cached."""
    slots = SlotPool(3)
    for number in range(100):
        slots.record_prompt([cast("Message", {"role": "user", "content": f"{number} and so on"})])
    return len(slots._prompts)


def model_clients() -> int:
    """Clients of model servers, one for each URL."""
    chat_models = ChatModels(load_settings())
    for number in range(100):
        policy = ChatModelPolicy(
            url=f"http://{number}.example/v1", model="m", key_env=None, max_tokens=1,
            temperature=0.0, ahead="off",
        )  # fmt: skip
        chat_models.model_server_for(policy)
    return len(chat_models._clients)


class _Silent:
    """A connection that never authenticates."""

    address = "203.0.113.7"

    def evict(self) -> None:
        """Do nothing."""


def unidentified_bytes() -> int:
    """Bytes received on connections that have not authenticated."""
    admission = Admission(1000, 1000, lambda _: False, Hooks(), max_bytes=10_000)
    for _ in range(100):
        member: AdmittedConnection = _Silent()
        admission.enter(member)
        admission.record_activity(member, 900)
    return admission._bytes


def cached_stems() -> int:
    """Words whose stems are cached."""
    for number in range(21_000):
        tokenization.terms_of(f"word{number}")
    return tokenization.stem_of.cache_info().currsize


def cached_hashes() -> int:
    """Words whose hashes are cached."""
    for number in range(51_000):
        tokenization.hash_of(f"word{number}")
    return tokenization.hash_of.cache_info().currsize


def cached_terms() -> int:
    """Texts whose terms are cached; long ones are not."""
    for number in range(4_500):
        tokenization.terms_of(f"text {number}")
    misses = tokenization._cached_terms.cache_info().misses
    tokenization.terms_of("long " * 101)
    assert tokenization._cached_terms.cache_info().misses == misses
    return tokenization._cached_terms.cache_info().currsize


def cached_languages() -> int:
    """Texts whose languages are cached."""
    for number in range(4_500):
        detection.language_of(f"text {number}")
    return detection._language_of.cache_info().currsize


def cached_statements() -> int:
    """Texts whose statements are cached."""
    for number in range(600):
        extraction.statements_in(f"text {number}")
    return extraction._statements_in.cache_info().currsize


def cached_scores() -> int:
    """Texts whose scores are cached; long ones are not."""
    for number in range(4_500):
        scoring.significance_by_words(f"text {number}")
    size = scoring._cached_score.cache_info().currsize
    scoring.significance_by_words("long " * 101)
    assert scoring._cached_score.cache_info().misses == 4_500
    return size


@pytest.mark.parametrize(
    ("overfill", "bound"),
    [
        (replay_bytes, 5000),
        (queued_embeddings, 20),
        (waiting_tickets, 5),
        (pending_announcements, 4096),
        (slot_prompts, 3),
        (model_clients, 32),
        (unidentified_bytes, 10_000),
        (cached_stems, 20_000),
        (cached_hashes, 50_000),
        (cached_terms, 4_000),
        (cached_languages, 4_000),
        (cached_statements, 500),
        (cached_scores, 4_000),
    ],
)
def test_an_overfilled_cache_or_queue_stays_within_its_bound(
    overfill: Callable[[], int], bound: int
) -> None:
    """And is nearly full, so that the test counts what it filled. An erasure empties it."""
    assert bound * 0.8 <= overfill() <= bound
    caches.on_announcement(MemoriesForgotten(1, 1, 1, 1, None, 1))
    assert not any(cache.cache_info().currsize for cache in caches._caches)


def unbounded(path: Path) -> Iterator[str]:
    """Find the caches and queues that a module builds without a bound."""
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
        if name in ("Queue", "lru_cache", "erasable_cache", "LRUCache", "TTLCache") and not bound:
            yield name
        if name == "deque" and not any(keyword.arg == "maxlen" for keyword in node.keywords):
            yield name


def test_no_cache_or_queue_is_built_without_a_bound() -> None:
    """Except those that something else bounds; the list of exceptions is complete and current."""
    found = {
        f"{path.relative_to(package)}: {name}"
        for package in _PACKAGES
        for path in package.rglob("*.py")
        for name in unbounded(path)
    }
    assert found == set(_UNBOUNDED)
