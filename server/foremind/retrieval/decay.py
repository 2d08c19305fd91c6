"""Memory decay. Pure.

Four modes, chosen by name:

- `window`: constant recency for 90 days, after which memories are no longer recalled.
- `half_life`: recency halves with every 180 days.
- `hourly`: recency is 0.995 to the power of the hours since the last access (Generative Agents,
  Park et al. 2023, arXiv 2304.03442), and is a term of the score.
- `product`: the score is similarity times importance times the user's weight times that recency.

The last access is when a memory was said or last used, whichever is later: recall refreshes it.
Memories at or above the permanent significance do not decay.
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
    """Return a memory's recency at `now`, 1 down to 0; always 1 in the `window` mode."""
    if policy.decay == "window" or significance >= policy.permanent_significance:
        return 1.0
    last = created_at if last_used_at is None else max(created_at, last_used_at)
    age_s = max(0.0, (now - last).total_seconds())
    if policy.decay != "half_life":
        return float(_HOURLY ** (age_s / _HOUR_S))
    return float(0.5 ** (age_s / _DAY_S / policy.half_life_days))
