"""Applies retention: removes what is older than its layer or type may be kept."""

from foremind.background.curation_context import CurationContext
from foremind.domain.settings.setting_definitions import TRANSCRIPT
from foremind.memory.expiry import RetentionEnforcer


async def apply_retention(context: CurationContext, enforcer: RetentionEnforcer) -> None:
    """Remove expired records, memories and turns."""
    retention = context.policy.retention
    expired = [
        record.id
        for record in context.records
        if record.layer in retention and context.now - record.updated_at > retention[record.layer]
    ]
    if expired:
        await enforcer.expire_records(context.relationship.id, expired)
        await context.reload()
    names = (context.relationship.user_name, context.relationship.companion_name)
    for kind, age in retention.items():
        if kind == TRANSCRIPT:
            await enforcer.expire_transcript(context.relationship.id, names, context.now - age)
        else:
            await enforcer.expire_memories(context.relationship.id, names, kind, context.now - age)
