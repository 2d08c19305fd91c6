"""How memories fade. Pure.

Four ways, chosen by name:

- `window`: all alike for 90 days, then no longer recalled; significance ranks inside it.
- `half_life`: recency halves with every 180 days.
- `hourly`: recency is 0.995 to the power of the hours since the last access (Generative Agents,
  Park et al. 2023, arXiv 2304.03442), and adds to the score.
- `product`: similarity times importance times the user's weight times that same recency, over the
  nearest.

The last access is when a memory was said or last used, whichever is later: what is recalled stays.
Memories from the permanent significance on do not fade.
"""

from datetime import datetime

from foremind.domain.policy import RecallPolicy

_HOURLY = 0.995
_HOUR_S, _DAY_S = 3600, 86_400


def recency(
    policy: RecallPolicy,
    significance: float,
    created_at: datetime,
    last_used_at: datetime | None,
    now: datetime,
) -> float:
    """Return how fresh a memory is at `now`, from 1 down to 0; in the window all are alike."""
    if policy.decay == "window" or significance >= policy.permanent_significance:
        return 1.0
    last = created_at if last_used_at is None else max(created_at, last_used_at)
    age_s = max(0.0, (now - last).total_seconds())
    if policy.decay != "half_life":
        return float(_HOURLY ** (age_s / _HOUR_S))
    return float(0.5 ** (age_s / _DAY_S / policy.half_life_days))
