"""Builds what erases, corrects and maintains memories, from the core."""

from collections.abc import Callable

from foremind.app.core import Core
from foremind.background.step_definitions import HELD_FOR, STEPS_BY_NAME
from foremind.background.step_runner import StepRunner
from foremind.background.worker import BackgroundWorker
from foremind.llm.model_selection import ChatModels
from foremind.memory.correct import Corrector
from foremind.memory.erase import Eraser, UserEraser
from foremind.memory.erasure_scope import SimilarityThresholds
from foremind.memory.expiry import RetentionEnforcer
from foremind.memory.importance_rating import ImportanceRater
from foremind.retrieval.relationship_layers import MIN_EPISODE_COSINE, MIN_TOPIC_COSINE
from foremind.retrieval.similarity_calibration import calibrated_passage_cosine
from foremind.storage.curation_store import CurationStore
from foremind.storage.step_store import StepStore


def build_eraser(components: Core) -> Eraser:
    """Return what erases memories, transcripts and records on request."""
    return Eraser(
        components.database,
        components.ingester,
        components.embedder,
        components.runtime.clock,
        _similarity_thresholds(components),
    )


def build_user_eraser(components: Core) -> UserEraser:
    """Return what erases users with all that they said."""
    return UserEraser(components.stores.users, build_eraser(components), components.runtime.clock)


def build_corrector(components: Core) -> Corrector:
    """Return what corrects memories."""
    return Corrector(
        components.database,
        components.embedder,
        components.ingester,
        components.runtime.clock,
        _similarity_thresholds(components),
        components.stores.quota,
    )


def build_retention_enforcer(components: Core) -> RetentionEnforcer:
    """Return what removes expired data."""
    return RetentionEnforcer(
        components.database, components.ingester, components.embedder, components.runtime.clock
    )


def build_background_worker(
    components: Core, chat_models: ChatModels, has_peers: Callable[[], bool] = lambda: False
) -> BackgroundWorker:
    """Return the worker that ingests turns and maintains layers; it runs while it is entered.

    Args:
        has_peers: whether other processes serve relationships of the same database.
    """
    curation_store = CurationStore(components.database)
    runner = StepRunner(
        curation_store,
        components.stores,
        components.embedder,
        chat_models,
        build_retention_enforcer(components),
        build_eraser(components),
        ImportanceRater(chat_models, components.stores.memories, components.ingester),
        components.runtime,
    )
    return BackgroundWorker(
        curation_store,
        StepStore(components.database, HELD_FOR, STEPS_BY_NAME),
        runner,
        components.ingester,
        components.runtime,
        has_peers,
    )


def _similarity_thresholds(components: Core) -> SimilarityThresholds:
    """Return the cosines from which two stored texts count as being about the same."""
    manifest = components.embedder.manifest
    return SimilarityThresholds(
        calibrated_passage_cosine(manifest, MIN_TOPIC_COSINE),
        calibrated_passage_cosine(manifest, MIN_EPISODE_COSINE),
    )
