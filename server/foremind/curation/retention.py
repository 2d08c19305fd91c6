"""Lets go what is older than its layer or type may be kept."""

from foremind.curation.work import Work
from foremind.memory.forget import Forgetter

_AT_ONCE = 50  # memories of a type that one round lets go


async def let_go(work: Work, forgetter: Forgetter) -> None:
    """Remove records and memories that are past the days that their kind is kept."""
    if not work.policy.retention:
        return
    old = [
        each.id
        for each in work.records
        if each.layer in work.policy.retention
        and work.now - each.updated_at > work.policy.retention[each.layer]
    ]
    if old:
        async with work.store.changing(work.bond.id, work.now) as changes:
            removed = await changes.remove([*old, *await changes.made_of((), old)])
            await changes.audit("server", "retention", f"{removed} records")
        await work.refresh()
    for kind, age in work.policy.retention.items():
        await forgetter.forget_older(
            work.bond.id,
            (work.bond.user_name, work.bond.companion_name),
            kind,
            work.now - age,
            _AT_ONCE,
        )
