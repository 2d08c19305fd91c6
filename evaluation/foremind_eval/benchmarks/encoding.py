"""Embedding: int8 against fp32."""

import asyncio
from collections.abc import Awaitable, Callable

from foremind.domain.settings.settings import Settings
from foremind_eval.benchmarks.figures import Figure, Say, measure_interleaved, timing_figure
from foremind_models import OnnxEncoder, find_model, prepare_model

_LENGTHS = (8, 16, 32, 64, 128)


async def bench_embedding(settings: Settings, say: Say) -> list[Figure]:
    """Embed one text at a time, int8 against fp32, by length in tokens."""
    manifest = find_model(settings.embedding_model, settings.models_dir)
    model = await asyncio.to_thread(prepare_model, manifest, settings.models_dir, say)
    encoder, reference = model.encoder(), model.reference_encoder()
    figures = []
    for length in _LENGTHS:
        text = _text_of_length(encoder, length)
        times_ms = await measure_interleaved([_encoding(encoder, text), _encoding(reference, text)])
        figures.append(timing_figure(f"embed {length} tokens", "fp32", *times_ms))
    return figures


def _text_of_length(encoder: OnnxEncoder, tokens: int) -> str:
    """Return the shortest text of at least `tokens` tokens."""
    text = "rain"
    while encoder.count_tokens(text) < tokens:
        text += " rain"
    return text


def _encoding(encoder: OnnxEncoder, text: str) -> Callable[[], Awaitable[object]]:
    async def encode() -> object:
        return encoder.encode([text])

    return encode
