-- name: insert_user_turn
-- Stores a user's turn, unless the message id is stored or the token revoked; the session stays active.
-- It waits to be ingested, unless it is not to be kept, for instance for lack of a consent that is
-- needed. The process that stores it answers it, and learns the versions in force, so that no reply
-- is made of anything older.
-- This is a transaction of its own, in one round trip, as a player waits for it. It sets the
-- relationship itself: a row comes out of `within` before row-level security examines it.
WITH within AS MATERIALIZED (
    SELECT set_config('foremind.relationship', $1::bigint::text, true)::bigint AS relationship_id
), permitted AS MATERIALIZED (
    SELECT relationship.id AS relationship_id, companion_id, memory_version, layers_version,
        removals, erasures, settings_version, companion.version AS companion_version,
        documents_version, consented_at IS NOT NULL AS consented,
        pg_postmaster_start_time()::text || ' ' || relationship.tableoid AS incarnation,
        $7 AND (consented_at IS NOT NULL OR NOT $10::boolean) AS kept,
        EXISTS (
            SELECT FROM revocations
            WHERE subject = ANY ($11::text[])
                AND CASE WHEN token_id IS NULL THEN until >= $13 ELSE token_id = $12 END
        ) AS revoked
    FROM within
    JOIN relationships AS relationship ON relationship.id = within.relationship_id
    JOIN companions AS companion ON companion.id = companion_id
), active AS (
    UPDATE sessions SET active_at = greatest(active_at, $6), closed_at = NULL
    FROM permitted
    WHERE sessions.relationship_id = $1 AND sessions.id = $2 AND NOT revoked
), turn AS (
    INSERT INTO turns
        (relationship_id, session_id, user_id, speaker, message_id, status, content, created_at,
         kept, answering_by, answering_until)
    SELECT $1, $2, $3::bigint, 'user', $4, 'completed', $5, $6::timestamptz, kept, $8, $9
    FROM permitted WHERE NOT revoked
    ON CONFLICT (user_id, message_id) DO NOTHING
    RETURNING id
), waiting AS (
    INSERT INTO background_steps
        (relationship_id, step, turn_id, lane, place, companion_id, due_at, since)
    SELECT $1, 'ingest', turn.id, 'ingest', '', companion_id, $14, $6
    FROM turn, permitted WHERE kept
)
SELECT turn.id, permitted.*,
    coalesce((
        SELECT version FROM session_states
        WHERE relationship_id = permitted.relationship_id AND session_id = $2
    ), 0) AS state_version,
    (
        SELECT previous.id FROM turns AS previous
        WHERE previous.relationship_id = permitted.relationship_id AND previous.session_id = $2
            AND previous.removed_at IS NULL AND previous.message_id IS DISTINCT FROM $4
        ORDER BY previous.id DESC LIMIT 1
    ) AS previous_turn_id
FROM permitted LEFT JOIN turn ON true;

-- name: turn_in_force
-- Reads what is in force before a user's turn is stored, and whether it may be stored and kept.
-- This and the next three do in a transaction what a sharded database cannot do in one statement.
SELECT relationship.id AS relationship_id, companion_id, memory_version, layers_version, removals,
    erasures, settings_version, companion.version AS companion_version, documents_version,
    consented_at IS NOT NULL AS consented,
    pg_postmaster_start_time()::text || ' ' || relationship.tableoid AS incarnation,
    $3::boolean AND (consented_at IS NOT NULL OR NOT $4::boolean) AS kept,
    EXISTS (
        SELECT FROM revocations
        WHERE subject = ANY ($5::text[])
            AND CASE WHEN token_id IS NULL THEN until >= $7::timestamptz ELSE token_id = $6::text END
    ) AS revoked,
    coalesce((
        SELECT state.version FROM session_states AS state
        WHERE state.relationship_id = $1 AND state.session_id = $2
    ), 0) AS state_version,
    (
        SELECT previous.id FROM turns AS previous
        WHERE previous.relationship_id = $1 AND previous.session_id = $2
            AND previous.removed_at IS NULL AND previous.message_id IS DISTINCT FROM $8::text
        ORDER BY previous.id DESC LIMIT 1
    ) AS previous_turn_id
FROM relationships AS relationship JOIN companions AS companion ON companion.id = companion_id
WHERE relationship.id = $1;

-- name: insert_turn
-- Stores a user's turn, unless the message id is stored; the process that stores it answers it.
INSERT INTO turns
    (relationship_id, session_id, user_id, speaker, message_id, status, content, created_at,
     kept, answering_by, answering_until)
VALUES ($1, $2, $3, 'user', $4, 'completed', $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: enqueue_turn
-- Has a new turn wait to be ingested.
INSERT INTO background_steps
    (relationship_id, step, turn_id, lane, place, companion_id, due_at, since)
VALUES ($1, 'ingest', $2, 'ingest', '', $3, $5, $4);

-- name: insert_event
-- Stores what happened, which belongs to no session, unless the event's id is stored.
INSERT INTO turns
    (relationship_id, user_id, speaker, event_id, event_type, status, content, created_at)
VALUES ($1, $2, 'companion', $3, $4, 'completed', $5, $6)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: turn_of_event
-- Finds the turn that is stored under an event's id.
SELECT id FROM turns WHERE relationship_id = $1 AND event_id = $2;

-- name: keep_session_active
-- Records that something was said in a session.
UPDATE sessions SET active_at = greatest(active_at, $3), closed_at = NULL
WHERE relationship_id = $1 AND id = $2;

-- name: lock_user_turn
-- Locks the turn stored under a user's message id, so that one process at a time claims it.
SELECT id FROM turns WHERE relationship_id = $1 AND user_id = $2 AND message_id = $3
FOR NO KEY UPDATE;

-- name: user_turn
-- Reads whether a user's turn is kept, was answered or sent differently, and who claimed it.
-- The text of an erased or corrected turn is no longer known, and an erased one needs no answer.
SELECT
    removed_at IS NOT NULL
        OR EXISTS (
            SELECT FROM turns AS reply WHERE reply.relationship_id = $1 AND reply.reply_to = $2
        ) AS answered,
    content <> $3 AND removed_at IS NULL AND NOT corrected AS differs,
    kept, answering_by, answering_until,
    (
        SELECT count(*) FROM alternative_replies AS other
        WHERE other.relationship_id = $1 AND other.turn_id = $2
    ) AS alternatives
FROM turns AS turn WHERE relationship_id = $1 AND id = $2;

-- name: claim_turn
-- Claims a user's turn that is to be answered.
UPDATE turns SET answering_by = $3, answering_until = $4 WHERE relationship_id = $1 AND id = $2;

-- name: process_is_answering
-- Returns whether the process that claimed a turn is alive and has time left.
-- While it lives, it holds an advisory lock of its number. No table is read, so that a sharded
-- database looks on the node where the lock is held.
SELECT CASE
    WHEN $1::bigint IS NULL OR $2::timestamptz <= $3::timestamptz THEN false
    ELSE NOT pg_try_advisory_xact_lock_shared($1::bigint)
END;

-- name: release_turn
-- Releases the claim on a turn that this process did not answer.
UPDATE turns SET answering_by = NULL, answering_until = NULL
WHERE relationship_id = $1 AND user_id = $2 AND message_id = $3 AND answering_by = $4;

-- name: answer_of_turn
-- Reads the reply to a user's turn, if any, and which process claimed the turn until when.
SELECT
    (SELECT reply.id FROM turns AS reply
     WHERE reply.relationship_id = $1 AND reply.reply_to = turn.id) AS reply,
    answering_by, answering_until
FROM turns AS turn WHERE relationship_id = $1 AND id = $2 AND removed_at IS NULL;

-- name: lock_presence
-- Takes the lock that shows other processes that this one is alive.
SELECT pg_advisory_lock($1);

-- name: insert_reply
-- Stores what the player was shown of a reply, once per turn it answers; it may wait for ingest.
-- Nothing is stored if something was erased since its prompt was built. That is stored with it,
-- unless something was removed since, and takes the place of the relationship's earliest ($17).
-- Background work waits for a lull of the conversation, within bounds, unless it is urgent.
WITH due AS (
    UPDATE relationships
    SET gathered = gathered + 1, gathered_since = coalesce(gathered_since, $7),
        due_at = CASE
            WHEN due_at <= $7 THEN due_at
            WHEN $11::boolean OR gathered + 1 >= $12::integer THEN $7
            -- In UTC, as in a sharded database an update may not depend on the session's time zone.
            ELSE least($13::timestamptz,
                (coalesce(gathered_since, $7) AT TIME ZONE 'UTC' + $14::interval) AT TIME ZONE 'UTC')
            END
    WHERE id = $1 AND erasures = coalesce($9, erasures)
    RETURNING id, companion_id, removals
), regenerated AS MATERIALIZED (
    SELECT coalesce(max(position) + 1, 0) AS position FROM alternative_replies
    WHERE relationship_id = $1 AND turn_id = $4::bigint
), turn AS (
    INSERT INTO turns
        (relationship_id, session_id, user_id, speaker, reply_to, status, content, created_at,
         kept, position)
    -- Reads no table itself: a sharded database would take the id from a sequence of that worker.
    SELECT due.id, $2::uuid, $3::bigint, 'companion', $4::bigint, $5, $6, $7::timestamptz, $10,
        regenerated.position
    FROM due, regenerated
    ON CONFLICT (relationship_id, reply_to) DO NOTHING
    RETURNING id
), waiting AS (
    INSERT INTO background_steps
        (relationship_id, step, turn_id, lane, place, companion_id, due_at, since)
    SELECT due.id, 'ingest', turn.id, 'ingest', '', due.companion_id, $7, $7
    FROM due, turn WHERE $8::boolean
), earlier AS (
    DELETE FROM reply_prompts
    WHERE relationship_id = $1 AND $15::text IS NOT NULL AND (number, position) <= (
        SELECT number, position FROM reply_prompts
        WHERE relationship_id = $1 ORDER BY number DESC, position DESC OFFSET $17 - 1 LIMIT 1
    )
), prompt AS (
    INSERT INTO reply_prompts (relationship_id, number, position, reply_id, prompt)
    SELECT due.id, $4::bigint, regenerated.position, turn.id, $15::text
    FROM due, regenerated, turn WHERE $15::text IS NOT NULL AND due.removals = $16::bigint
    ON CONFLICT (relationship_id, number, position)
        DO UPDATE SET reply_id = excluded.reply_id, prompt = excluded.prompt
)
SELECT id, EXISTS (SELECT FROM alternative_replies WHERE relationship_id = $1) AS alternatives
FROM turn;

-- name: find_turn
-- Reads a turn that was not erased; of a reply, what it answers and which of the replies it is.
SELECT turn.id, turn.speaker, turn.message_id, turn.status, turn.content, turn.created_at,
    asked.message_id AS answers,
    (
        SELECT count(*) FROM alternative_replies AS other
        WHERE other.relationship_id = $1 AND other.turn_id = turn.reply_to
            AND other.position < turn.position
    ) AS index,
    1 + (
        SELECT count(*) FROM alternative_replies AS other
        WHERE other.relationship_id = $1 AND other.turn_id = turn.reply_to
    ) AS count
FROM turns AS turn
LEFT JOIN turns AS asked
    ON asked.relationship_id = turn.relationship_id AND asked.id = turn.reply_to
WHERE turn.relationship_id = $1 AND turn.id = $2 AND turn.removed_at IS NULL;

-- name: remaining_turns
-- Reads which of some turns were not erased.
SELECT id FROM turns WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND removed_at IS NULL;

-- name: recent_turns
-- Lists the last turns of a relationship, oldest first; of replies also which they are, as above.
SELECT latest.id, latest.speaker, latest.message_id, latest.status, latest.content,
    latest.created_at,
    (
        SELECT asked.message_id FROM turns AS asked
        WHERE asked.relationship_id = $1 AND asked.id = latest.reply_to
    ) AS answers,
    (
        SELECT count(*) FROM alternative_replies AS other
        WHERE other.relationship_id = $1 AND other.turn_id = latest.reply_to
            AND other.position < latest.position
    ) AS index,
    1 + (
        SELECT count(*) FROM alternative_replies AS other
        WHERE other.relationship_id = $1 AND other.turn_id = latest.reply_to
    ) AS count
FROM (
    SELECT id, speaker, message_id, status, content, created_at, reply_to, position
    FROM turns
    WHERE relationship_id = $1 AND removed_at IS NULL AND event_id IS NULL
    ORDER BY id DESC LIMIT $2
) AS latest
ORDER BY latest.id;

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

-- name: messages_before
-- Lists the beginnings of the user's last messages of other sessions than one, the newest first.
SELECT left(content, 2000) AS content
FROM turns
WHERE relationship_id = $1 AND session_id IS DISTINCT FROM $2::uuid AND speaker = 'user'
    AND removed_at IS NULL
ORDER BY id DESC
LIMIT $3;

-- name: newest_turns
-- Lists the last turns of a relationship with their sessions, the newest first.
SELECT turn.id, turn.session_id, session.active_at, turn.speaker, turn.message_id, turn.status,
    turn.content, turn.removed_at IS NOT NULL AS removed, turn.kept
FROM turns AS turn
JOIN sessions AS session
    ON session.relationship_id = turn.relationship_id AND session.id = turn.session_id
WHERE turn.relationship_id = $1
ORDER BY turn.id DESC
LIMIT $2;
