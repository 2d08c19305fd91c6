-- name: find_user
-- Finds a user by the id that clients use.
SELECT id, external_id, name, time_zone, language, region FROM users WHERE external_id = $1;

-- name: ensure_user
-- Creates a user, unless there is one.
INSERT INTO users (external_id, name) VALUES ($1, '') ON CONFLICT DO NOTHING;

-- name: put_user
-- Creates a user, or sets the name, the time zone, the language and its region.
INSERT INTO users (external_id, name, time_zone, language, region) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (external_id) DO UPDATE
SET name = excluded.name, time_zone = excluded.time_zone, language = excluded.language,
    region = excluded.region
RETURNING id, external_id, name, time_zone, language, region;

-- name: pseudonym_key
-- Reads the key of the pseudonyms of erased users.
SELECT key FROM pseudonym_key;

-- name: delete_relationship
-- Deletes a relationship with everything that belongs to it.
WITH sources AS (
    DELETE FROM record_sources WHERE relationship_id = $1
), revisions AS (
    DELETE FROM record_revisions WHERE relationship_id = $1
), layers AS (
    DELETE FROM records WHERE relationship_id = $1
), words AS (
    DELETE FROM memory_terms WHERE relationship_id = $1
), facts AS (
    DELETE FROM memory_facts WHERE relationship_id = $1
), traces AS (
    DELETE FROM memory_changes WHERE relationship_id = $1
), again AS (
    DELETE FROM memory_sources WHERE relationship_id = $1
), remembered AS (
    DELETE FROM memories WHERE relationship_id = $1
), said AS (
    DELETE FROM turns WHERE relationship_id = $1
), prompts AS (
    DELETE FROM reply_prompts WHERE relationship_id = $1
), states AS (
    DELETE FROM session_states WHERE relationship_id = $1
), talks AS (
    DELETE FROM sessions WHERE relationship_id = $1 RETURNING id
), trail AS (
    DELETE FROM audit WHERE relationship_id = $1 RETURNING id
), relationship AS (
    DELETE FROM relationships WHERE id = $1 RETURNING id
)
SELECT (SELECT count(*) FROM relationship) AS relationships, (SELECT count(*)
FROM talks) AS sessions,
    (SELECT count(*) FROM trail) AS audit;

-- name: take_identity
-- Takes a user's id, name, time zone and language away: nobody finds the user by them any more.
UPDATE users
SET external_id = $2 || '-' || id, name = '', time_zone = 'UTC', language = NULL
WHERE external_id = $1 RETURNING id;

-- name: insert_erased_user
-- Records that a user is being erased.
INSERT INTO erased_users (user_id, external_id, timelines, erased_at, by_operator)
VALUES ($1, $2, $3, $4, $5)
RETURNING id, user_id, external_id AS player, timelines::text AS timelines;

-- name: unfinished_erasure
-- Finds the latest unfinished erasure of a user by the pseudonym.
SELECT id, user_id, external_id AS player, timelines::text AS timelines
FROM erased_users AS erased
WHERE user_id IS NOT NULL AND $1 || '-' || user_id = (
    SELECT external_id FROM users AS account WHERE account.id = erased.user_id
)
ORDER BY id DESC LIMIT 1;

-- name: unfinished_erasures
-- Lists the unfinished erasures of users.
SELECT id, user_id, external_id AS player, timelines::text AS timelines FROM erased_users
WHERE user_id IS NOT NULL ORDER BY user_id;

-- name: count_erased
-- Adds to the receipt of a user's erasure.
UPDATE erased_users
SET receipt = (
    SELECT jsonb_object_agg(
        kind, coalesce((receipt ->> kind)::bigint, 0) + coalesce(($2::jsonb ->> kind)::bigint, 0)
    )
    FROM jsonb_object_keys(receipt || $2::jsonb) AS kind
)
WHERE id = $1;

-- name: lock_erased_user
-- Locks a user's erasure, so that one transaction at a time finishes it.
SELECT user_id, receipt::text AS receipt FROM erased_users WHERE id = $1 FOR UPDATE;

-- name: lock_user
-- Locks a user, so that no relationship is added.
SELECT id FROM users WHERE id = $1 FOR UPDATE;

-- name: finish_erased_user
-- Records that nothing is left of an erased user.
UPDATE erased_users SET user_id = NULL, external_id = NULL, timelines = '{}' WHERE id = $1;

-- name: delete_user
-- Deletes a user who has no relationships.
DELETE FROM users WHERE id = $1 RETURNING id;

-- name: rename_actor
-- Replaces a user by a pseudonym in audit trails.
UPDATE audit SET actor = $2 WHERE actor = $1;

-- name: rename_revoked
-- Replaces a user by a pseudonym in revocations, which stay in force.
UPDATE revocations SET subject = $2 WHERE subject = $1;

-- name: revocations_of_user
-- Lists the revocations of a user's tokens.
SELECT token_id, until FROM revocations WHERE subject = $1 ORDER BY until;

-- name: relationship_ids_of_user
-- Lists the relationships of a user.
SELECT id FROM relationships WHERE user_id = $1 ORDER BY id;

-- name: stored_turns
-- Counts the turns of a relationship, and the bytes of their texts, though they may be compressed.
SELECT count(*) AS turns, coalesce(sum(octet_length(content)), 0)::bigint AS bytes
FROM turns WHERE relationship_id = $1;

-- name: add_spent_tokens
-- Adds to the tokens that users spent on a day; those of erased users count no more.
INSERT INTO spent_tokens AS known (user_id, companion_id, day, tokens)
SELECT spent.user_id, spent.companion_id, $1, spent.tokens
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS spent (user_id, companion_id, tokens)
JOIN users AS account ON account.id = spent.user_id
ORDER BY spent.user_id, spent.companion_id
ON CONFLICT (user_id, companion_id) DO UPDATE
SET day = excluded.day,
    tokens = excluded.tokens + CASE WHEN known.day = excluded.day THEN known.tokens ELSE 0 END
WHERE known.day <= excluded.day;

-- name: spent_tokens
-- Reads what users spent on a day, by companion.
SELECT user_id, companion_id, tokens FROM spent_tokens WHERE user_id = ANY ($1::bigint[]) AND day = $2;
