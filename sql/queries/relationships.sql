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
