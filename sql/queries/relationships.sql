-- name: open_session
-- Resumes a user's session with a companion, or opens one, creating user and relationship.
-- A session ends when it has been idle for longer than its lifetime.
WITH account AS (
    INSERT INTO users (external_id, name, time_zone) VALUES ($1, $2, $5)
    ON CONFLICT (external_id) DO UPDATE SET name = excluded.name, time_zone = excluded.time_zone
    RETURNING id
), bond AS (
    INSERT INTO relationships AS known (user_id, companion_id, due_at, consented_at)
    SELECT id, $3, $4::timestamptz + $6::interval, CASE WHEN $7 THEN $4::timestamptz END
    FROM account
    ON CONFLICT (user_id, companion_id) DO UPDATE
        SET due_at = least(known.due_at, excluded.due_at),
            consented_at = CASE
                WHEN $7::boolean IS NULL THEN known.consented_at
                WHEN $7 THEN coalesce(known.consented_at, excluded.consented_at) END
    RETURNING id, user_id, memory_version, layers_version, settings, operator_settings,
        erasures,
        consented_at IS NOT NULL AS consented
), going_on AS (
    SELECT session.id, session.active_at
    FROM sessions AS session JOIN bond ON bond.id = session.relationship_id
    WHERE closed_at IS NULL AND active_at > $4::timestamptz - $6::interval
    ORDER BY active_at DESC
    LIMIT 1
), begun AS (
    INSERT INTO sessions (relationship_id, opened_at, active_at)
    SELECT id, $4, $4 FROM bond WHERE NOT EXISTS (SELECT FROM going_on)
    RETURNING id, active_at
)
SELECT session.id AS session_id, session.begun, session.active_at, bond.id AS relationship_id,
    bond.user_id, bond.memory_version, bond.layers_version, bond.settings, bond.operator_settings,
    bond.erasures, bond.consented
FROM bond
CROSS JOIN (
    SELECT id, false AS begun, active_at FROM going_on UNION ALL SELECT id, true, active_at FROM begun
) AS session;

-- name: roll_over_session
-- Finds the session of a relationship that was active lately, or begins one.
WITH going_on AS (
    SELECT id FROM sessions
    WHERE relationship_id = $1 AND closed_at IS NULL AND active_at > $2::timestamptz - $3::interval
    ORDER BY active_at DESC
    LIMIT 1
), begun AS (
    INSERT INTO sessions (relationship_id, opened_at, active_at)
    SELECT $1, $2, $2 WHERE NOT EXISTS (SELECT FROM going_on)
    RETURNING id
)
SELECT id FROM going_on UNION ALL SELECT id FROM begun;

-- name: memory_versions
-- Reads the memory versions and numbers of erasures of relationships.
SELECT id, memory_version, erasures FROM relationships WHERE id = ANY ($1::bigint[]);

-- name: relationships_of_user
-- Lists a user's relationships with their companions.
SELECT bond.id, bond.memory_version, bond.memory_count, bond.settings,
    bond.operator_settings, bond.shares_counts, bond.consented_at IS NOT NULL AS consented,
    account.external_id AS user_id, account.name AS user_name, account.time_zone,
    companion.slug AS companion
FROM relationships AS bond
JOIN users AS account ON account.id = bond.user_id
JOIN companions AS companion ON companion.id = bond.companion_id
WHERE account.external_id = $1
ORDER BY bond.id;

-- name: relationship
-- Reads a relationship with its user and companion.
SELECT bond.id, bond.memory_version, bond.memory_count, bond.settings,
    bond.operator_settings, bond.shares_counts, bond.consented_at IS NOT NULL AS consented,
    account.external_id AS user_id, account.name AS user_name, account.time_zone,
    companion.slug AS companion
FROM relationships AS bond
JOIN users AS account ON account.id = bond.user_id
JOIN companions AS companion ON companion.id = bond.companion_id
WHERE bond.id = $1;

-- name: memories_of_relationship
-- Lists memories of a relationship after a cursor, with how often each was said.
SELECT id::text, content, speaker, memory_type, significance, reasons, created_at, happened_from,
    happened_to, last_used_at, superseded_by::text,
    1 + (SELECT count(*) FROM memory_sources
         WHERE relationship_id = $1 AND memory_id = memories.id) AS times_said
FROM memories
WHERE relationship_id = $1 AND id > $2
ORDER BY memories.id
LIMIT $3;

-- name: relationship_settings
-- Reads the settings of a relationship.
SELECT settings, operator_settings FROM relationships WHERE id = $1;

-- name: settings_with_companion
-- Reads the settings of a user's relationship with a companion.
SELECT bond.settings, bond.operator_settings
FROM relationships AS bond JOIN users AS account ON account.id = bond.user_id
WHERE account.external_id = $1 AND bond.companion_id = $2;

-- name: lock_settings
-- Reads the settings of a relationship, and locks them.
SELECT settings, operator_settings FROM relationships WHERE id = $1 FOR NO KEY UPDATE;

-- name: change_relationship
-- Sets the settings of a relationship, and whether its user agrees to be counted.
WITH counted AS (
    UPDATE records SET counted = $4
    WHERE relationship_id = $1 AND layer = 'topics' AND counted <> $4
)
UPDATE relationships
SET settings = $2, operator_settings = $3, shares_counts = coalesce($4, shares_counts),
    layers_version = layers_version + 1
WHERE id = $1
RETURNING layers_version;

-- name: set_consent
-- Records whether a user agrees to be remembered by a companion, and since when.
UPDATE relationships
SET consented_at = CASE WHEN $2 THEN coalesce(consented_at, $3::timestamptz) END WHERE id = $1;

-- name: sessions_of_relationship
-- Lists the sessions of a relationship that have turns, newest first.
SELECT session.id, session.opened_at, session.active_at, session.closed_at,
    count(turn.id) AS turns
FROM sessions AS session
JOIN turns AS turn
    ON turn.relationship_id = session.relationship_id AND turn.session_id = session.id
WHERE session.relationship_id = $1 AND turn.removed_at IS NULL
GROUP BY session.relationship_id, session.id
ORDER BY session.active_at DESC
LIMIT $2;

-- name: turns_of_relationship
-- Lists turns after a cursor, of one session or all, with the memory each belongs to.
SELECT turn.id::text, turn.session_id, turn.speaker, turn.content AS text, turn.created_at,
    coalesce(memory.id, source.memory_id)::text AS memory
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
LEFT JOIN memory_sources AS source
    ON source.relationship_id = turn.relationship_id AND source.turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id > $2 AND turn.removed_at IS NULL AND turn.content <> ''
    AND ($4::uuid IS NULL OR turn.session_id = $4)
ORDER BY turn.id
LIMIT $3;

-- name: latest_session
-- Finds the latest open session of a relationship that was active since a time.
SELECT id FROM sessions
WHERE relationship_id = $1 AND closed_at IS NULL AND active_at > $2
ORDER BY active_at DESC LIMIT 1;
