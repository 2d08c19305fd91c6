-- name: claim_due
-- Claims relationships that are due and that nobody holds, the longest waiting first.
-- One whose memories are being changed is waited for: that takes milliseconds, and who waited for
-- another worker finds it claimed. Where its holder dies, it is due when the claim ends.
WITH due AS MATERIALIZED (
    SELECT id FROM relationships
    WHERE due_at <= $1 AND (claimed_until IS NULL OR claimed_until <= $1)
    ORDER BY due_at LIMIT $3 FOR NO KEY UPDATE
)
UPDATE relationships AS bond SET due_at = $2, claimed_until = $2 FROM due WHERE bond.id = due.id
RETURNING bond.id;

-- name: renew_claim
-- Puts off the end of a claim that is still held.
UPDATE relationships
SET claimed_until = $3, due_at = CASE WHEN due_at = $2 THEN $3 ELSE due_at END
WHERE id = $1 AND claimed_until = $2
RETURNING id;

-- name: finish_curation
-- Gives up a claim, and says when its relationship is due next, unless something new made it due.
UPDATE relationships
SET claimed_until = NULL, due_at = CASE WHEN due_at = $2 THEN $3 ELSE due_at END
WHERE id = $1 AND claimed_until = $2;

-- name: make_due
-- Lets a relationship be curated as soon as may be.
UPDATE relationships SET due_at = $2 WHERE id = $1;

-- name: relationship_to_curate
-- Reads who a relationship is between, its settings, and how far each kind of work is done.
SELECT bond.id, account.name AS user_name, account.time_zone, companion.name AS companion_name,
    companion.settings AS companion_settings, bond.settings, bond.operator_settings,
    bond.noted_turn_id, bond.summarised_turn_id, bond.told_turn_id, bond.habits_at,
    bond.dismissed, bond.salt, bond.erasures, bond.remade::text AS remade,
    (SELECT count(*) FROM turns WHERE relationship_id = bond.id AND removed_at IS NULL) AS messages
FROM relationships AS bond
JOIN companions AS companion ON companion.id = bond.companion_id
JOIN users AS account ON account.id = bond.user_id
WHERE bond.id = $1;

-- name: turns_after
-- Lists the turns of a relationship after one of them, with what became of each.
SELECT turn.id, turn.session_id, turn.speaker, turn.content, turn.created_at, turn.embedding,
    coalesce(memory.significance, 0) AS significance,
    EXISTS (
        SELECT FROM record_sources AS source JOIN records AS record ON record.id = source.record_id
        WHERE source.turn_id = turn.id AND record.layer = 'episodes'
    ) AS told
FROM turns AS turn LEFT JOIN memories AS memory ON memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id > $2 AND turn.removed_at IS NULL AND turn.kept
ORDER BY turn.id LIMIT $3;

-- name: unkept_turns
-- Lists the turns of a relationship that are not to be kept, of sessions that are over.
SELECT turn.id FROM turns AS turn JOIN sessions AS session ON session.id = turn.session_id
WHERE turn.relationship_id = $1 AND NOT turn.kept AND turn.removed_at IS NULL
    AND session.closed_at IS NOT NULL
ORDER BY turn.id;

-- name: wake_for_retention
-- Looks once a day at relationships that sleep, and makes those due where something is let go.
WITH next AS MATERIALIZED (
    SELECT id FROM relationships WHERE woken_at <= $2 ORDER BY woken_at LIMIT $4
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE relationships AS bond
SET woken_at = $1,
    due_at = CASE
        WHEN $3 OR bond.settings ? 'retention_days' OR companion.settings ? 'retention_days'
        THEN least(bond.due_at, $1) ELSE bond.due_at END
FROM companions AS companion
WHERE bond.id = ANY (ARRAY(SELECT id FROM next)) AND companion.id = bond.companion_id;

-- name: open_sessions
-- Lists the sessions of a relationship that are not closed.
SELECT id, active_at FROM sessions WHERE relationship_id = $1 AND closed_at IS NULL
ORDER BY active_at;

-- name: close_session
-- Closes a session whose time is over, unless it went on meanwhile.
UPDATE sessions SET closed_at = $3
WHERE id = $1 AND relationship_id = $2 AND active_at <= $4;

-- name: session_habits
-- Reads how long sessions were, at what hour of the user's day, and how often the user asked.
SELECT session.id, min(turn.created_at) AS began, max(turn.created_at) AS ended,
    count(*) FILTER (WHERE turn.speaker = 'user') AS said,
    count(*) FILTER (WHERE turn.speaker = 'user' AND turn.content LIKE '%?%') AS asked
FROM sessions AS session JOIN turns AS turn ON turn.session_id = session.id
WHERE session.relationship_id = $1 AND turn.removed_at IS NULL
GROUP BY session.id
ORDER BY began DESC
LIMIT 60;

-- name: advance_noted
-- Notes up to which turn the scratchpad is kept.
UPDATE relationships SET noted_turn_id = greatest(noted_turn_id, $2) WHERE id = $1;

-- name: advance_summarised
-- Notes up to which turn the summary tells.
UPDATE relationships SET summarised_turn_id = greatest(summarised_turn_id, $2) WHERE id = $1;

-- name: advance_told
-- Notes up to which turn episodes are told.
UPDATE relationships SET told_turn_id = greatest(told_turn_id, $2) WHERE id = $1;

-- name: advance_habits
-- Notes when a relationship's habits were looked at.
UPDATE relationships SET habits_at = $2 WHERE id = $1;

-- name: turns_by_id
-- Reads turns of a relationship that were not removed, with what became of each.
SELECT turn.id, turn.session_id, turn.speaker, turn.content, turn.created_at, turn.embedding,
    coalesce(memory.significance, 0) AS significance, false AS told
FROM turns AS turn LEFT JOIN memories AS memory ON memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id = ANY ($2::bigint[]) AND turn.removed_at IS NULL
ORDER BY turn.id;

-- name: curate_again
-- Lets what was made of removed turns be made anew without them.
-- The summary from the first turn on, if it is gone; episodes from before the first removed turn.
UPDATE relationships
SET due_at = $2, told_turn_id = least(told_turn_id, $3::bigint - 1),
    summarised_turn_id = CASE
        WHEN EXISTS (SELECT FROM records WHERE relationship_id = $1 AND layer = 'summary')
        THEN summarised_turn_id ELSE 0 END,
    layers_version = layers_version + 1
WHERE id = $1;
