"""`make compare`: recall and latency of Foremind and of common alternatives, in one run.

    python -m loadtests.compare locomo_dev.json

Every system stores the same turns with the same vectors, from Foremind's embedding model, and is
asked the same questions one at a time, in its own virtual environment (created once, in the data
folder). Foremind itself ingests the conversations turn by turn, as when they take place, and keeps
only the turns that it considers significant.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from foremind.app.configuration import load_settings
from foremind.app.core import Core, core
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.search import GatedSearch, Query, RankedSearch
from foremind.runtime.logs import configure_logging
from foremind_eval.chart import Bar, draw
from foremind_eval.dialogue_replay import VectorCache, replay_dialogue
from foremind_eval.dialogues import Dialogue
from foremind_eval.locomo import read_locomo
from loadtests.environments import environment

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
_LIMIT = 10
_INDEX_BYTES = 1 << 30
_SYSTEMS = ("lancedb", "txtai", "chroma", "mem0")


def main() -> None:
    """Run every system, print a table, write `compare.json` and the chart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="conversations in LoCoMo's format")
    parser.add_argument("--environments", type=Path, help="folder with one environment per system")
    options = parser.parse_args()
    dialogues = read_locomo(options.file)
    settings = load_settings(log_level="warning")
    configure_logging(settings)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    folder = options.environments or settings.data_dir / "compare-environments"
    pythons = {
        system: environment(folder / system, HERE / f"requirements-{system}.txt")
        for system in _SYSTEMS
    }
    with tempfile.TemporaryDirectory(prefix="compare-", dir=settings.data_dir) as scratch:
        rows = asyncio.run(_compare(dialogues, pythons, Path(scratch).absolute()))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "compare.json").write_text(json.dumps(rows, indent=2) + "\n")
    (HERE.parents[1] / "docs" / "compare.svg").write_text(_chart(rows))
    print(_table(rows))


async def _compare(
    dialogues: Sequence[Dialogue], pythons: dict[str, Path], scratch: Path
) -> list[dict[str, Any]]:
    settings = load_settings().in_scratch(scratch)
    async with core(settings) as parts:
        data, embed_ms = await _embed_all(parts, dialogues)
        path = scratch / "data.json"
        path.write_text(json.dumps(data))
        rows = [await _foremind(parts, dialogues, data, embed_ms)]
        for system, python in pythons.items():
            print(f"{system} ...")
            out = scratch / f"{system}.json"
            command = [str(python), f"system_{system}.py", str(path), str(out)]
            variables = os.environ | {"COMPARE_DATABASE_URL": parts.database_url}
            process = await asyncio.to_thread(
                subprocess.run, command, cwd=HERE, env=variables, check=False
            )
            if process.returncode:
                sys.exit(f"{system} failed.")
            result = json.loads(out.read_text())
            for kind, answers in result["answers"].items():
                rows.append(_row(kind, result["version"], data, answers, embed_ms))
    return sorted(rows, key=lambda row: -row["recall@10"])


async def _embed_all(parts: Core, dialogues: Sequence[Dialogue]) -> tuple[dict[str, Any], float]:
    """Return the dialogues with vectors, and the median milliseconds of embedding a question."""
    vectors, times_ms = VectorCache(parts), []

    async def embed(text: str) -> list[float]:
        return [float(value) for value in await vectors.embed(text)]

    embedded: list[dict[str, Any]] = []
    for dialogue in dialogues:
        names = {"user": dialogue.user_name, "companion": dialogue.companion_name}
        turns = []
        for turn in dialogue.turns:
            text = f"{names[turn.speaker]}: {turn.text}"
            turns.append({"id": turn.id, "text": text, "vector": await embed(text)})
        questions = []
        for question in dialogue.questions:
            started = time.perf_counter()
            vector = await embed(question.text)
            times_ms.append((time.perf_counter() - started) * 1000)
            questions.append(
                {"text": question.text, "vector": vector, "evidence": sorted(question.evidence)}
            )
        embedded.append({"turns": turns, "questions": questions})
    return {"limit": _LIMIT, "dialogues": embedded}, median(times_ms)


async def _foremind(
    parts: Core, dialogues: Sequence[Dialogue], data: dict[str, Any], embed_ms: float
) -> dict[str, Any]:
    """Replay the conversations, and ask the questions after the last turn."""
    vectors, answers = VectorCache(parts), []
    policy = policy_for(CompanionSettings(recall_any_age=True), parts.runtime.settings).recall
    for dialogue, embedded in zip(dialogues, data["dialogues"], strict=True):
        replayed = await replay_dialogue(
            parts, dialogue, "compare", CompanionSettings(), vectors, lambda _: None
        )
        turn_of = {memory_id: turn_id for turn_id, memory_id in replayed.memory_of.items()}
        now = dialogue.turns[-1].said_at.replace(hour=12)
        async with IndexedCandidates(
            parts.stores.memories, _INDEX_BYTES, parts.runtime.metrics
        ) as index:
            await index.wait_until_current(replayed.relationship_id)
            search = GatedSearch(RankedSearch(index), parts.classifiers)
            for question in embedded["questions"]:
                vector = np.array(question["vector"], np.float32)
                query = Query(replayed.relationship_id, question["text"], vector, policy, now)
                started = time.perf_counter()
                memories = await search.search(query)
                elapsed_ms = (time.perf_counter() - started) * 1000
                turn_ids = [turn_of.get(memory.id) for memory in memories]
                answers.append({"found": turn_ids, "ms": elapsed_ms})
    return _row("Foremind, as it ships", "this", data, answers, embed_ms)


def _row(
    name: str, version: str, data: dict[str, Any], answers: list[dict[str, Any]], embed_ms: float
) -> dict[str, Any]:
    questions = [question for dialogue in data["dialogues"] for question in dialogue["questions"]]
    shares = [
        len(set(question["evidence"]) & set(answer["found"])) / len(question["evidence"])
        for question, answer in zip(questions, answers, strict=True)
    ]
    search_ms = median(answer["ms"] for answer in answers)
    return {
        "name": name,
        "version": version,
        "recall@10": round(fmean(shares), 4),
        "questions": len(questions),
        "search_ms_p50": round(search_ms, 2),
        "with_embedding_ms_p50": round(search_ms + embed_ms, 2),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| system | version | recall@10 | search p50 ms | with embedding |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['version']} | {row['recall@10']:.3f} | {row['search_ms_p50']:.1f} "
        f"| {row['with_embedding_ms_p50']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _chart(rows: list[dict[str, Any]]) -> str:
    bars = [
        Bar(
            row["name"],
            row["recall@10"],
            f"{row['recall@10']:.3f}, {row['search_ms_p50']:.1f} ms",
        )
        for row in rows
    ]
    return draw(bars, "recall@10 on LoCoMo, and the median time of a search without embedding")


if __name__ == "__main__":
    main()
