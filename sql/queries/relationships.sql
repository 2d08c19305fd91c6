-- name: open_session
-- Goes on with a user's session with a companion, or opens one, creating both at first sight.
-- Where nobody said anything for longer than a session lives, its time is over.
WITH account AS (
    INSERT INTO users (external_id, name, time_zone) VALUES ($1, $2, $5)
    ON CONFLICT (external_id) DO UPDATE SET name = excluded.name, time_zone = excluded.time_zone
    RETURNING id
), bond AS (
    INSERT INTO relationships AS known (user_id, companion_id, due_at)
    SELECT id, $3, $4::timestamptz + $6::interval FROM account
    ON CONFLICT (user_id, companion_id) DO UPDATE
        SET due_at = least(known.due_at, excluded.due_at)
    RETURNING id, user_id, memory_version, layers_version, settings
), going_on AS (
    SELECT session.id FROM sessions AS session JOIN bond ON bond.id = session.relationship_id
    WHERE closed_at IS NULL AND active_at > $4::timestamptz - $6::interval
    ORDER BY active_at DESC
    LIMIT 1
), begun AS (
    INSERT INTO sessions (relationship_id, opened_at, active_at)
    SELECT id, $4, $4 FROM bond WHERE NOT EXISTS (SELECT FROM going_on)
    RETURNING id
)
SELECT session.id AS session_id, session.begun, bond.id AS relationship_id, bond.user_id,
    bond.memory_version, bond.layers_version, bond.settings
FROM bond
CROSS JOIN (
    SELECT id, false AS begun FROM going_on UNION ALL SELECT id, true FROM begun
) AS session;

-- name: memory_versions
-- Reads the memory versions of some relationships.
SELECT id, memory_version FROM relationships WHERE id = ANY ($1::bigint[]);

-- name: relationships_of_user
-- Lists a user's relationships with their companions, or one by its id.
SELECT bond.id, bond.memory_version, bond.memory_count, bond.settings, bond.shares_counts,
    account.external_id AS user_id, account.name AS user_name, account.time_zone,
    companion.slug AS companion
FROM relationships AS bond
JOIN users AS account ON account.id = bond.user_id
JOIN companions AS companion ON companion.id = bond.companion_id
WHERE account.external_id = $1 OR bond.id = $2
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

-- name: change_relationship
-- Gives a relationship settings of its own, and notes whether its user agrees to be counted.
UPDATE relationships
SET settings = $2, shares_counts = $3, layers_version = layers_version + 1 WHERE id = $1
RETURNING layers_version;

-- name: sessions_of_relationship
-- Lists the sessions of a relationship in which something was said, newest first.
SELECT session.id, session.opened_at, session.active_at, session.closed_at,
    count(turn.id) AS turns
FROM sessions AS session JOIN turns AS turn ON turn.session_id = session.id
WHERE session.relationship_id = $1 AND turn.removed_at IS NULL
GROUP BY session.id
ORDER BY session.active_at DESC
LIMIT $2;

-- name: latest_session
-- Finds the session of a relationship that goes on, if one does.
SELECT id FROM sessions
WHERE relationship_id = $1 AND closed_at IS NULL AND active_at > $2
ORDER BY active_at DESC LIMIT 1;
