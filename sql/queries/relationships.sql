-- name: open_session
-- Opens a session of a user with a companion, creating user and relationship at first sight.
WITH account AS (
    INSERT INTO users (external_id, name, time_zone) VALUES ($1, $2, $5)
    ON CONFLICT (external_id) DO UPDATE SET name = excluded.name, time_zone = excluded.time_zone
    RETURNING id
), bond AS (
    INSERT INTO relationships AS known (user_id, companion_id) SELECT id, $3 FROM account
    ON CONFLICT (user_id, companion_id) DO UPDATE SET memory_version = known.memory_version
    RETURNING id, user_id, memory_version
)
INSERT INTO sessions (relationship_id, opened_at) SELECT id, $4 FROM bond
RETURNING id AS session_id, relationship_id,
    (SELECT user_id FROM bond) AS user_id,
    (SELECT memory_version FROM bond) AS memory_version;

-- name: close_session
-- Marks a session as over.
UPDATE sessions SET closed_at = $2 WHERE id = $1;

-- name: memory_versions
-- Reads the memory versions of some relationships.
SELECT id, memory_version FROM relationships WHERE id = ANY ($1::bigint[]);

-- name: relationships_of_user
-- Lists a user's relationships with their companions.
SELECT bond.id, bond.memory_version, bond.memory_count, account.external_id AS user_id,
    account.name AS user_name, account.time_zone, companion.slug AS companion
FROM relationships AS bond
JOIN users AS account ON account.id = bond.user_id
JOIN companions AS companion ON companion.id = bond.companion_id
WHERE account.external_id = $1
ORDER BY bond.id;

-- name: memories_of_relationship
-- Lists memories of a relationship after one of them, with how often each was said.
SELECT id, content, speaker, memory_type, significance, reasons, created_at, happened_from,
    happened_to, last_used_at, superseded_by,
    1 + (SELECT count(*) FROM memory_sources WHERE memory_id = memories.id) AS times_said
FROM memories
WHERE relationship_id = $1 AND id > $2
ORDER BY id
LIMIT $3;
