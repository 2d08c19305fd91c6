-- name: claim_due
-- Takes relationships that are due, the longest waiting first, and puts them off for a lease.
-- One whose memories are being changed is waited for: that takes milliseconds, and who waited for
-- another worker finds it no longer due.
WITH due AS MATERIALIZED (
    SELECT id FROM relationships WHERE due_at <= $1
    ORDER BY due_at LIMIT $3 FOR NO KEY UPDATE
)
UPDATE relationships AS bond SET due_at = $2 FROM due WHERE bond.id = due.id
RETURNING bond.id;

-- name: finish_curation
-- Says when a relationship is due next, unless something new made it due meanwhile.
UPDATE relationships SET due_at = CASE WHEN due_at = $2 THEN $3 ELSE due_at END WHERE id = $1;

-- name: make_due
-- Lets a relationship be curated as soon as may be.
UPDATE relationships SET due_at = $2 WHERE id = $1;

-- name: relationship_to_curate
-- Reads who a relationship is between, its settings, and how far each kind of work is done.
SELECT bond.id, account.name AS user_name, account.time_zone, companion.name AS companion_name,
    companion.settings AS companion_settings, bond.settings AS own_settings,
    bond.noted_turn_id, bond.summarised_turn_id, bond.told_turn_id, bond.habits_at,
    bond.dismissed,
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
WHERE turn.relationship_id = $1 AND turn.id > $2 AND turn.removed_at IS NULL
ORDER BY turn.id LIMIT $3;

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
