"""Applies retention: removes what is older than its layer or type may be kept."""

from foremind.background.curation_context import CurationContext
from foremind.domain.record import RECORD_LAYERS
from foremind.domain.settings.setting_definitions import TRANSCRIPT
from foremind.memory.expiry import RetentionEnforcer


async def apply_retention(context: CurationContext, enforcer: RetentionEnforcer) -> None:
    """Remove expired records, memories and turns."""
    relationship = context.relationship
    before = {name: context.now - age for name, age in context.policy.retention.items()}
    expired = [
        record.id
        for record in context.records
        if record.layer in before and record.updated_at < before[record.layer]
    ]
    if expired:
        await enforcer.expire_records(relationship.id, expired)
        await context.reload()
    names = (relationship.user_name, relationship.companion_name)
    types = {
        name: time for name, time in before.items() if name not in (TRANSCRIPT, *RECORD_LAYERS)
    }
    if types:
        await enforcer.expire_memories(relationship.id, names, types)
    if TRANSCRIPT in before:
        await enforcer.expire_transcript(relationship.id, names, before[TRANSCRIPT])
