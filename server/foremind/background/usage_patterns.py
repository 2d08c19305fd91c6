"""Usage patterns: how a user likes to talk, inferred once a week from many sessions."""

from collections.abc import Sequence
from statistics import median

from foremind.background.curation_context import CurationContext
from foremind.background.due_work import usage_patterns_due
from foremind.background.step_definitions import Outcome
from foremind.domain.record import NewRecord
from foremind.domain.relationship import SessionUsage
from foremind.storage.record_changes import RecordChanges
from foremind.text.languages.prompt_words import record_words

_MIN_SESSIONS = 10
# Of a user's messages, in UTF-8, whose characters take more bytes where a word has fewer of them.
_SHORT_BYTES, _LONG_BYTES = 30, 250


async def update_usage_patterns(context: CurationContext) -> Outcome:
    """Rewrite the inferred part of the profile, once a week or after an erasure."""
    relationship = context.relationship
    change_set = relationship.inferences_to_redo
    if change_set is None and not usage_patterns_due(relationship.habits_at, context.now):
        return Outcome()
    if change_set is not None and relationship.change_sets_for("episodes"):
        return Outcome()  # scheduled again once these are rewritten
    await context.load()
    sessions = await context.curation.session_usage(relationship.id)
    patterns = usage_patterns_of(sessions, await context.language())
    known = {
        entry.title: entry for entry in context.records_of("profile") if entry.kind == "inferred"
    }

    async def write(changes: RecordChanges) -> None:
        for title, text in patterns.items() if context.policy.on("profile") else ():
            if context.dismissed("profile", title):
                continue
            record = NewRecord("profile", text, "rules", title=title, kind="inferred")
            if title not in known:
                await changes.add(record)
            elif known[title].content != text and known[title].made_by == "rules":
                await changes.change(known[title].id, record)
        await changes.remove(
            [
                entry.id
                for title, entry in known.items()
                if title not in patterns and entry.made_by == "rules"
            ]
        )
        await changes.connection.execute("record_usage_patterns_at", relationship.id, context.now)
        if change_set is not None:
            await changes.remove_change_set(change_set)

    context.plan(write)
    context.count_by_rules("habits")
    return Outcome(produced=True)


def usage_patterns_of(sessions: Sequence[SessionUsage], language: str) -> dict[str, str]:
    """Return usage patterns by title, as instructions; none for fewer than ten sessions. Pure.

    The titles are labels, which prompts show in the player's language.
    """
    if len(sessions) < _MIN_SESSIONS:
        return {}
    words = record_words(language)
    length = median(session.bytes / session.said for session in sessions)
    if _SHORT_BYTES < length < _LONG_BYTES:
        return {}
    return {"answers": words.short_answers if length <= _SHORT_BYTES else words.long_answers}
