"""Embedding: int8 against fp32."""

import asyncio
from collections.abc import Awaitable, Callable

from foremind.domain.settings import Settings
from foremind.evaluation.benchmarks.figures import Figure, Say, figure, in_turn
from foremind.retrieval.embedding.conversion import prepare_model
from foremind.retrieval.embedding.encoder import OnnxEncoder
from foremind.retrieval.embedding.model_registry import find_model

_LENGTHS = (8, 16, 32, 64, 128)


async def bench_embedding(settings: Settings, say: Say) -> list[Figure]:
    """One text at a time, int8 against fp32, by length in tokens."""
    manifest = find_model(settings.embedding_model, settings.models_dir)
    model = await asyncio.to_thread(prepare_model, manifest, settings.models_dir, say)
    encoder, reference = model.encoder(), model.reference_encoder()
    figures = []
    for length in _LENGTHS:
        text = text_of(encoder, length)
        pair = [
            _in_thread(encoder, text),
            _in_thread(reference, text),
        ]
        figures.append(figure(f"embed {length} tokens", "fp32", *await in_turn(pair)))
    return figures


def text_of(encoder: OnnxEncoder, tokens: int) -> str:
    """Return a text that the tokenizer counts as `tokens`, or the nearest more."""
    text = "rain"
    while encoder.count_tokens(text) < tokens:
        text += " rain"
    return text


def _in_thread(encoder: OnnxEncoder, text: str) -> Callable[[], Awaitable[object]]:
    async def encode() -> object:
        return encoder.encode([text])

    return encode
