-- name: insert_user_turn
-- Stores a user's turn and its job, unless the message id is stored; the session stays active.
-- A turn that is not to be kept has no job. The process that stores it answers it.
-- This is a transaction of its own, in one round trip, as a player waits for it. It sets the
-- relationship itself: a row comes out of `within` before row-level security examines it.
WITH within AS MATERIALIZED (
    SELECT set_config('foremind.relationship', $1::bigint::text, true)
), active AS (
    UPDATE sessions SET active_at = greatest(active_at, $6), closed_at = NULL
    WHERE relationship_id = $1 AND id = $2
), turn AS (
    INSERT INTO turns
        (relationship_id, session_id, user_id, speaker, message_id, status, content, created_at,
         kept, answering_by, answering_until)
    SELECT $1, $2, $3::bigint, 'user', $4, 'completed', $5, $6, $8, $9, $10 FROM within
    ON CONFLICT (user_id, message_id) DO NOTHING
    RETURNING id
)
SELECT id, CASE WHEN $8 THEN foremind_enqueue($7, $1, id) END FROM turn;

-- name: claim_user_turn
-- Finds the turn stored under a user's message id: whether it was answered, and sent differently.
-- The text of an erased or corrected turn is no longer known, and an erased one needs no answer.
-- One without an answer is claimed, unless another process is answering it.
WITH found AS MATERIALIZED (
    SELECT relationship_id, id,
        removed_at IS NOT NULL
            OR EXISTS (
                SELECT FROM turns AS reply
                WHERE reply.relationship_id = turn.relationship_id AND reply.reply_to = turn.id
            ) AS answered,
        content <> $3 AND removed_at IS NULL AND NOT corrected AS differs
    FROM turns AS turn WHERE user_id = $1 AND message_id = $2
), claimed AS (
    UPDATE turns AS turn SET answering_by = $4, answering_until = $5
    FROM found
    WHERE turn.relationship_id = found.relationship_id AND turn.id = found.id
        AND NOT found.answered AND NOT found.differs
        AND (
            turn.answering_by IS NOT DISTINCT FROM $4
            OR NOT foremind_answering(turn.answering_by, turn.answering_until, $6)
        )
    RETURNING turn.id
)
SELECT id, answered, differs, EXISTS (SELECT FROM claimed) AS claimed FROM found;

-- name: release_turn
-- Releases the claim on a turn that this process did not answer.
UPDATE turns SET answering_by = NULL, answering_until = NULL
WHERE user_id = $1 AND message_id = $2 AND answering_by = $3;

-- name: answer_of_turn
-- Reads the reply to a user's turn, if any, and whether a process is answering it.
SELECT
    (SELECT reply.id FROM turns AS reply
     WHERE reply.relationship_id = $1 AND reply.reply_to = turn.id) AS reply,
    foremind_answering(answering_by, answering_until, $3) AS under_way
FROM turns AS turn WHERE relationship_id = $1 AND id = $2 AND removed_at IS NULL;

-- name: lock_presence
-- Takes the lock that shows other processes that this one is alive.
SELECT pg_advisory_lock($1);

-- name: insert_reply
-- Stores what the player was shown of a reply, and any job for it, once per turn it answers.
-- Nothing is stored if something was erased since its prompt was built.
WITH due AS (
    UPDATE relationships SET due_at = $7 WHERE id = $1 AND erasures = coalesce($9, erasures)
    RETURNING id
), turn AS (
    INSERT INTO turns
        (relationship_id, session_id, user_id, speaker, reply_to, status, content, created_at,
         kept)
    SELECT id, $2::uuid, $3::bigint, 'companion', $4::bigint, $5, $6, $7::timestamptz, $10
    FROM due
    ON CONFLICT (relationship_id, reply_to) DO NOTHING
    RETURNING id
)
SELECT id, CASE WHEN $8::text IS NOT NULL THEN foremind_enqueue($8, $1, id) END FROM turn;

-- name: find_turn
-- Reads a turn that was not erased.
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

-- name: session_turns
-- Lists the last turns of a session, oldest first.
SELECT id, speaker, message_id, status, content, created_at
FROM (
    SELECT id, speaker, message_id, status, content, created_at
    FROM turns
    WHERE relationship_id = $1 AND session_id = $2 AND removed_at IS NULL
    ORDER BY id DESC LIMIT $3
) AS latest
ORDER BY id;

-- name: turn_to_ingest
-- Reads a turn with what ingesting it needs: names, time zone and settings.
SELECT turn.id, turn.relationship_id, turn.speaker, turn.content, turn.created_at,
    coalesce(turn.message_id, asked.message_id) AS message_id,
    account.name AS user_name, account.time_zone, companion.name AS companion_name,
    companion.settings AS companion_settings, bond.settings, bond.operator_settings
FROM turns AS turn
JOIN relationships AS bond ON bond.id = turn.relationship_id
JOIN companions AS companion ON companion.id = bond.companion_id
JOIN users AS account ON account.id = bond.user_id
LEFT JOIN turns AS asked
    ON asked.relationship_id = turn.relationship_id AND asked.id = turn.reply_to
WHERE turn.id = $1 AND turn.removed_at IS NULL;
