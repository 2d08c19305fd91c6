"""Performance: every figure is measured in the same run as the baseline it is compared to."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from foremind.domain.settings.settings import Settings
from foremind_eval.benchmarks.crowd import (
    bench_connections,
    bench_drafts,
    bench_typists,
)
from foremind_eval.benchmarks.document_search import bench_library
from foremind_eval.benchmarks.encoding import bench_embedding
from foremind_eval.benchmarks.enter import bench_enter, bench_layers
from foremind_eval.benchmarks.figures import Figure, Say
from foremind_eval.benchmarks.lore_activation import bench_lore
from foremind_eval.benchmarks.memory_search import bench_search
from foremind_eval.benchmarks.searches import bench_searches
from foremind_eval.benchmarks.worlds import bench_worlds

BENCHMARKS: dict[str, Callable[[Settings, Say], Awaitable[list[Figure]]]] = {
    "embedding": bench_embedding,
    "search": bench_search,
    "enter": bench_enter,
    "layers": bench_layers,
    "library": bench_library,
    "lore": bench_lore,
    "connections": bench_connections,
    "drafts": bench_drafts,
    "typists": bench_typists,
    "searches": bench_searches,
    "worlds": bench_worlds,
}


async def run_benchmarks(
    names: list[str], settings: Settings, scratch: Path, say: Say
) -> list[Figure]:
    """Run benchmarks by name, each on its own database in `scratch`."""
    figures: list[Figure] = []
    for name in names:
        figures += await BENCHMARKS[name](settings.in_scratch(scratch / name), say)
    return figures
