"""The estimated memory use of cached layers is accurate for every field of a record."""

import gc
import random
import tracemalloc
from datetime import UTC, datetime

import pytest

from foremind.app.configuration import load_settings
from foremind.domain.record import RECORD_LAYERS, Details, LayersState, Record, RecordLayer
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.relationship_layers import RelationshipLayers
from foremind_models import find_model

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
_MAX_ITEMS = 100


def text(rng: random.Random, length: int) -> str:
    """A text that shares memory with no other."""
    return f"{rng.random():.18f}".ljust(length, "a")[-length:]


def texts(rng: random.Random, length: int) -> tuple[str, ...]:
    """The maximum number of list items."""
    return tuple(text(rng, length) for _ in range(_MAX_ITEMS))


def record(rng: random.Random, layer: RecordLayer, large: str) -> Record:
    """A record of which one field is large."""

    def of(name: str, length: int) -> str:
        return text(rng, length if large == name else 5)

    details = {
        name: texts(rng, 20)
        for name in ("questions", "conclusions", "open_questions", "topics")
        if name == large
    }
    return Record(
        id=rng.randrange(10**9),
        layer=layer,
        kind=of("kind", 300),
        title=of("title", 300),
        content=of("content", 8000),
        refs=texts(rng, {"refs": 20, "long refs": 300}[large]) if "refs" in large else (),
        details=Details(**details, status="open"),  # type: ignore[arg-type]
        vector=None,
        made_by="user",
        session_id=None,
        created_at=NOW,
        updated_at=NOW,
        revision=1,
    )


@pytest.mark.parametrize(
    "large",
    ["", "kind", "title", "content", "refs", "long refs", "questions", "conclusions",
     "open_questions", "topics"],
)  # fmt: skip
def test_every_field_of_a_record_is_counted(large: str) -> None:
    """And none of them several times."""
    settings = load_settings()
    manifest = find_model(settings.embedding_model, settings.models_dir)
    rng = random.Random(7)
    gc.collect()
    tracemalloc.start()
    try:
        records = [record(rng, layer, large) for layer in RECORD_LAYERS for _ in range(5)]
        layers = RelationshipLayers(LayersState(1, 0, 0), records, manifest, estimate_tokens, "de")
        gc.collect()
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes <= 1.2 * layers.size_bytes
    assert layers.size_bytes <= 4 * used_bytes
