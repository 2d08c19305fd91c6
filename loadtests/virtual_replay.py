"""`make replay RECORDINGS=...`: the same typing on virtual time, apart from the machine's load.

Typists share one embedding thread; debouncing, prefetch policy, queue and cache are the server's.
Embedding and searching take a fixed time, and nothing is searched. Every sentence of every
recording is typed, and Enter pressed after different times, so the result is the same each time.
"""

import argparse
import asyncio
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from foremind.app.configuration import load_settings
from foremind.llm.prompt.sections import StandingLayers
from foremind.retrieval.embedding.service import Embedded, EmbeddingService, Priority
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import BuildTimings, ContextCache, PreparedContext
from foremind.typeahead.prefetcher import PrefetchCallbacks, Prefetcher
from foremind_eval.doubles.virtual_time import VirtualClock, VirtualLoop
from foremind_models import CancelFlag, ConvertedEncoder, find_model
from loadtests.recordings import Recording, read_recordings

RESULTS = Path(__file__).parent / "results"
_ENTER_MS = (80.0, 150.0, 200.0)
_CHARS = 60
_SEARCH_S, _OVERHEAD_S = 0.001, 0.002  # as the server charges them
_REPLY_S = 1.0  # between Enter and the next sentence
_TYPISTS = 20
_EMBED_CPU_S = 0.0025  # of a draft
# Milliseconds until a draft is embedded: with a core to itself, and where others use it too.
_LOADS_MS = {"alone": 2.5, "crowded": 16.0, "overcrowded": 40.0}


class _Backend:
    """Embeds in a fixed time; knows the model's vocabulary."""

    concurrency = 1

    def __init__(self, encoder: Any, embed_s: float) -> None:
        self.word_share = encoder.word_share
        self._embed_s = embed_s

    def health(self) -> dict[str, str]:
        return {}

    async def embed(self, text: str, priority: Priority, stop: CancelFlag) -> Embedded:
        await asyncio.sleep(self._embed_s)
        return Embedded(np.zeros(8, np.float32), _EMBED_CPU_S)

    async def close(self) -> None:
        """Nothing to close."""


class _Builder:
    """Builds empty contexts in the time that a search takes."""

    def __init__(self, embedder: EmbeddingService, scope: Any) -> None:
        self._embedder = embedder
        self._scope = scope
        self.word_share = embedder.word_share
        self.raise_priority = embedder.raise_priority
        self.built = 0

    async def prepare(self, text: str, _: Any, priority: Priority, __: Any) -> PreparedContext:
        self.built += 1
        vector = await self._embedder.embed_query(text, priority, self._scope.user_id)
        await asyncio.sleep(_SEARCH_S)
        return PreparedContext(
            text, self._scope.cache_key, vector, (), {}, {}, StandingLayers(),
            BuildTimings(0.0, 0.0, 0.0, {}),
        )  # fmt: skip

    def is_fresh(self, _: int) -> bool:
        return True

    @property
    def utilization(self) -> float:
        return self._embedder.utilization

    @property
    def typical_cpu_s(self) -> float:
        return self._embedder.load.typical_cpu_s + _SEARCH_S + _OVERHEAD_S


def _same(scope: RetrievalScope) -> RetrievalScope:
    return scope


class _Replay:
    """What was counted while typists typed."""

    def __init__(self) -> None:
        self.sent = self.hits = self.chars = self.built = 0
        self.busy: list[float] = []

    async def run(
        self, recordings: list[list[Recording]], encoder: Any, embed_s: float, enter_s: float
    ) -> None:
        settings = load_settings()
        clock, metrics = VirtualClock(), Metrics()
        manifest = find_model(settings.embedding_model, settings.models_dir)
        backend = cast("Any", _Backend(encoder, embed_s))
        capacity, supervisor = settings.embedding_queue_size, Supervisor(clock, metrics)
        async with EmbeddingService(
            backend, manifest, capacity, clock, metrics, supervisor
        ) as embedder, asyncio.TaskGroup() as group:  # fmt: skip
            cache = ContextCache(10_000, 1 << 30, 60.0, clock)
            for number in range(_TYPISTS):
                sentences = recordings[number % len(recordings)]
                turned = number // len(recordings) % len(sentences)
                scope = SimpleNamespace(
                    relationship_id=number, user_id=number, cache_key="key", language="en"
                )
                builder = _Builder(embedder, scope)
                prefetcher = Prefetcher(
                    cast("Any", builder), cache, partial(_same, cast("Any", scope)),
                    PrefetchCallbacks(lambda _: None, lambda *_: None),
                    lambda: (0.5, True), 1.0, clock, metrics, "en",
                )  # fmt: skip
                group.create_task(
                    self._typist(
                        prefetcher, builder, sentences[turned:] + sentences[:turned], enter_s,
                        number * 0.37,
                    )
                )  # fmt: skip

    async def _typist(
        self, prefetcher: Prefetcher, builder: _Builder, sentences: list[Recording],
        enter_s: float, starts_s: float,
    ) -> None:  # fmt: skip
        await asyncio.sleep(starts_s)
        time = asyncio.get_running_loop().time
        for sentence in sentences:
            started = time()
            for offset_s, draft in sentence.keys:
                await asyncio.sleep(max(0.0, started + offset_s - time()))
                prefetcher.update(draft)
            await asyncio.sleep(enter_s)
            self.busy.append(builder.utilization)
            self.built += builder.built  # what Enter itself builds is not counted
            prefetcher.enter(sentence.text)
            at_enter = await prefetcher.context_at_enter(sentence.text)
            builder.built = 0
            self.sent += 1
            self.hits += at_enter.outcome == "hit"
            self.chars += len(sentence.text)
            await asyncio.sleep(_REPLY_S)
        await prefetcher.close()


def main() -> None:
    """Replay, print, write `virtual_replay.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path, nargs="+")
    options = parser.parse_args()
    settings = load_settings()
    manifest = find_model(settings.embedding_model, settings.models_dir)
    encoder = ConvertedEncoder(manifest, settings.models_dir / manifest.folder_name).encoder()
    recordings = read_recordings(options.recordings)
    report = {
        load: {"embed_ms": embed_ms} | _measure(recordings, encoder, embed_ms / 1000)
        for load, embed_ms in _LOADS_MS.items()
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "virtual_replay.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def _measure(recordings: list[list[Recording]], encoder: Any, embed_s: float) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for enter_ms in _ENTER_MS:
        for sign in (True, False):
            typed = [
                [sentence if sign else sentence.without_final_sign() for sentence in sentences]
                for sentences in recordings
            ]
            replay = _Replay()
            loop = VirtualLoop()
            try:
                loop.run_until_complete(replay.run(typed, encoder, embed_s, enter_ms / 1000))
            finally:
                loop.close()
            report[f"Enter after {enter_ms:.0f} ms" + ("" if sign else ", no sign at the end")] = {
                "sent": replay.sent,
                "hit_share": round(replay.hits / replay.sent, 4),
                f"prepared_per_{_CHARS}_chars": round(replay.built / replay.chars * _CHARS, 1),
                "embedder_busy": round(sum(replay.busy) / len(replay.busy), 3),
            }
    return report


if __name__ == "__main__":
    main()
