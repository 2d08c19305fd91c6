-- name: insert_user_turn
-- Stores what a user said and a job for it, unless its message id is stored; its session goes on.
-- A transaction of its own: a round trip for what a player waits for. It names its relationship
-- itself, and a row comes out of `within` before row-level security looks at it.
WITH within AS MATERIALIZED (
    SELECT set_config('foremind.relationship', $1::bigint::text, true)
), active AS (
    UPDATE sessions SET active_at = greatest(active_at, $6), closed_at = NULL WHERE id = $2
), turn AS (
    INSERT INTO turns
        (relationship_id, session_id, user_id, speaker, message_id, status, content, created_at)
    SELECT $1, $2, $3::bigint, 'user', $4, 'completed', $5, $6 FROM within
    ON CONFLICT (user_id, message_id) DO NOTHING
    RETURNING id
)
SELECT id, foremind_enqueue($7, $1, id) FROM turn;

-- name: find_user_turn
-- Finds the turn that a user's message id was stored as, and whether it was answered.
SELECT id, EXISTS (SELECT FROM turns AS reply WHERE reply.reply_to = turn.id) AS answered
FROM turns AS turn WHERE user_id = $1 AND message_id = $2;

-- name: insert_reply
-- Stores what the companion was heard to say and any job for it, once for each turn it answers.
WITH due AS (
    UPDATE relationships SET due_at = $7 WHERE id = $1
), turn AS (
    INSERT INTO turns
        (relationship_id, session_id, user_id, speaker, reply_to, status, content, created_at)
    VALUES ($1, $2, $3, 'companion', $4, $5, $6, $7)
    ON CONFLICT (reply_to) DO NOTHING
    RETURNING id
)
SELECT id, CASE WHEN $8::text IS NOT NULL THEN foremind_enqueue($8, $1, id) END FROM turn;

-- name: find_turn
-- Reads a turn of a relationship that was not removed.
SELECT id, speaker, message_id, status, content, created_at
FROM turns WHERE relationship_id = $1 AND id = $2 AND removed_at IS NULL;

-- name: recent_turns
-- Lists the last turns of a relationship, oldest first.
SELECT id, speaker, message_id, status, content, created_at
FROM (
    SELECT id, speaker, message_id, status, content, created_at
    FROM turns WHERE relationship_id = $1 AND removed_at IS NULL ORDER BY id DESC LIMIT $2
) AS latest
ORDER BY id;

-- name: working_turns
-- Lists the last turns of a session, oldest first.
SELECT id, speaker, message_id, status, content, created_at
FROM (
    SELECT id, speaker, message_id, status, content, created_at
    FROM turns
    WHERE relationship_id = $1 AND session_id = $2 AND removed_at IS NULL
    ORDER BY id DESC LIMIT $3
) AS latest
ORDER BY id;

-- name: turn_to_remember
-- Reads a turn with what judging it needs: who said it and its companion's settings.
SELECT turn.id, turn.relationship_id, turn.speaker, turn.content, turn.created_at,
    coalesce(turn.message_id, asked.message_id) AS message_id,
    account.name AS user_name, account.time_zone, companion.name AS companion_name,
    companion.settings
FROM turns AS turn
JOIN relationships AS bond ON bond.id = turn.relationship_id
JOIN companions AS companion ON companion.id = bond.companion_id
JOIN users AS account ON account.id = bond.user_id
LEFT JOIN turns AS asked ON asked.id = turn.reply_to
WHERE turn.id = $1 AND turn.removed_at IS NULL;
