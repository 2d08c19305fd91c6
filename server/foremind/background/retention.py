"""Lets go what is older than its layer or type may be kept."""

from foremind.background.curation_context import CurationContext
from foremind.domain.settings import TRANSCRIPT
from foremind.memory.expiry import RetentionEnforcer


async def let_go(work: CurationContext, expirer: RetentionEnforcer) -> None:
    """Remove what is past the days that its kind is kept: records, memories, what was said."""
    retention = work.policy.retention
    old = [
        record.id
        for record in work.records
        if record.layer in retention and work.now - record.updated_at > retention[record.layer]
    ]
    if old:
        await expirer.records(work.bond.id, old)
        await work.refresh()
    names = (work.bond.user_name, work.bond.companion_name)
    for kind, age in retention.items():
        if kind == TRANSCRIPT:
            await expirer.transcript(work.bond.id, names, work.now - age)
        else:
            await expirer.memories(work.bond.id, names, kind, work.now - age)
