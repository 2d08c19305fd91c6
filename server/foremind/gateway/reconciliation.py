"""Compares open sessions with the database every few seconds, whatever was announced."""

from typing import Self

import structlog

from foremind.auth.access_tokens import CLOCK_SKEW_S
from foremind.cluster.freshness import RECONCILE_S, Freshness
from foremind.domain.errors import StorageUnavailable
from foremind.gateway.session_registry import SessionRegistry
from foremind.runtime.supervision import SupervisedLoop, Supervisor

# Revocations carry the time of the process that made them, whose clock may be behind this one.
_REVOKED_WITHIN_S = 4 * RECONCILE_S + CLOCK_SKEW_S

_log = structlog.get_logger("foremind.gateway")


class Reconciliation:
    """Bounds how long an open session goes without what nobody announced; runs while entered."""

    def __init__(
        self, freshness: Freshness, registry: SessionRegistry, supervisor: Supervisor
    ) -> None:
        self._freshness = freshness
        self._registry = registry
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.every("reconciliation", RECONCILE_S, self.reconcile)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()

    async def reconcile(self) -> None:
        """Compare versions, and apply revocations."""
        relationships = self._registry.open_relationships()
        if not relationships:
            return
        try:
            await self._freshness.reconcile(relationships)
            await self._registry.apply_revocations(_REVOKED_WITHIN_S)
        except StorageUnavailable as error:  # then versions are compared before each use
            _log.warning("reconciliation.failed", reason=error.code)
