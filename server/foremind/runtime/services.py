"""What every component of a process shares."""

from dataclasses import dataclass

from foremind.domain.clock import Clock
from foremind.domain.settings.settings import Settings
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor


@dataclass(frozen=True, slots=True)
class RuntimeServices:
    """Settings, clock and metrics of the server, and the supervisor of its loops."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    supervisor: Supervisor
