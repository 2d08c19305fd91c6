"""The retrieval scope of a session: made once for each set of versions."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from foremind.app.configuration import load_settings
from foremind.domain.companion import Companion
from foremind.domain.settings.settings import RelationshipSettings
from foremind.gateway.live_settings import SharedValue
from foremind.gateway.session_policy import SessionPolicy
from tests.unit.gateway.speculation import _COMPANION, _OPENED


class _World:
    """A session's policy, and what it reads of its server."""

    def __init__(self) -> None:
        self.layers: Any = None
        self.deletions = 0
        self.companion: SharedValue[Companion] = SharedValue(_COMPANION)
        self.overrides = SharedValue(RelationshipSettings())
        context = SimpleNamespace(
            layer_cache=SimpleNamespace(get=lambda _: self.layers),
            library=SimpleNamespace(deletion_count=lambda _: self.deletions),
            embedder=SimpleNamespace(manifest=SimpleNamespace(fingerprint="f")),
        )
        services = SimpleNamespace(
            context=context,
            runtime=SimpleNamespace(settings=load_settings()),
            chat_models=SimpleNamespace(model_name_for=lambda _: "offline"),
        )
        self.policy = SessionPolicy(
            cast("Any", services), "Ana", self.companion, self.overrides, _OPENED, ZoneInfo("UTC")
        )


def _change_settings(world: _World) -> None:
    world.overrides.value = RelationshipSettings()


def _change_companion(world: _World) -> None:
    world.companion.value = replace(_COMPANION, version=_COMPANION.version + 1)


CHANGES: dict[str, Callable[[_World], object]] = {
    "a memory": lambda world: world.policy.observe_memory_version(9),
    "the layers": lambda world: world.policy.observe_layers_version(9),
    "the cached layers": lambda world: setattr(world, "layers", SimpleNamespace(version=9)),
    "unknown layers": lambda world: world.policy.forget_layers_version(),
    "a document deleted": lambda world: setattr(world, "deletions", 1),
    "commits lost": lambda world: world.policy.go_back(0),
    "the companion": _change_companion,
    "the settings": _change_settings,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_scope_is_made_once_for_each_set_of_versions(change: Callable[[_World], object]) -> None:
    """Whatever a context depends on is compared each time, and costs no new scope by itself."""
    world = _World()
    scope = world.policy.retrieval_scope()
    assert world.policy.retrieval_scope() is scope
    change(world)
    changed = world.policy.retrieval_scope()
    assert changed is not scope
    assert world.policy.retrieval_scope() is changed


def test_a_turn_with_settings_of_its_own_has_a_scope_of_its_own() -> None:
    """And the session's is the same again after that."""
    world = _World()
    scope = world.policy.retrieval_scope()
    own = replace(world.policy.policy, pause_s=1.0)
    assert world.policy.retrieval_scope(own) is not scope
    assert world.policy.retrieval_scope() == scope
