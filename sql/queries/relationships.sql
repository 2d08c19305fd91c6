-- name: open_session
-- Resumes a user's session with a companion, or opens one, creating the relationship.
-- A session ends when it has been idle for longer than its lifetime; one that is named is resumed.
WITH relationship AS (
    INSERT INTO relationships AS known (id, user_id, companion_id, due_at, consented_at)
    VALUES ($1, $2, $3, $5, CASE WHEN $7::boolean THEN $4::timestamptz END)
    ON CONFLICT (id) DO UPDATE
        SET due_at = least(known.due_at, excluded.due_at),
            consented_at = CASE
                WHEN $7::boolean IS NULL THEN known.consented_at
                WHEN $7::boolean THEN coalesce(known.consented_at, excluded.consented_at) END
    RETURNING id, user_id, memory_version, layers_version, settings, operator_settings,
        erasures,
        consented_at IS NOT NULL AS consented
), going_on AS (
    SELECT id, active_at FROM sessions
    WHERE relationship_id = $1
        AND CASE WHEN $8::uuid IS NULL THEN closed_at IS NULL AND active_at > $6 ELSE id = $8 END
    ORDER BY active_at DESC
    LIMIT 1
), begun AS (
    INSERT INTO sessions (relationship_id, opened_at, active_at)
    SELECT id, $4::timestamptz, $4::timestamptz FROM relationship
    WHERE NOT EXISTS (SELECT FROM going_on)
    RETURNING id, active_at
)
SELECT session.id AS session_id, session.begun, session.active_at,
    relationship.id AS relationship_id,
    relationship.user_id, relationship.memory_version, relationship.layers_version,
    relationship.settings, relationship.operator_settings,
    relationship.erasures, relationship.consented
FROM relationship
CROSS JOIN (
    SELECT id, false AS begun, active_at FROM going_on UNION ALL SELECT id, true, active_at
    FROM begun
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

-- name: relationship_versions
-- Reads the versions of everything that processes cache of relationships.
SELECT relationship.id AS relationship_id, companion_id, memory_version, layers_version, removals,
    erasures, settings_version, companion.version AS companion_version, documents_version,
    consented_at IS NOT NULL AS consented,
    pg_postmaster_start_time()::text || ' ' || relationship.tableoid AS incarnation
FROM relationships AS relationship JOIN companions AS companion ON companion.id = companion_id
WHERE relationship.id = ANY ($1::bigint[]);

-- name: relationships_of_user
-- Lists a user's relationships with their companions.
SELECT relationship.id, relationship.memory_version, relationship.removals, relationship.memory_count,
    relationship.settings, relationship.operator_settings,
    relationship.consented_at IS NOT NULL AS consented,
    account.external_id AS user_id, account.name AS user_name, account.time_zone,
    account.language, account.region, companion.slug AS companion
FROM relationships AS relationship
JOIN users AS account ON account.id = relationship.user_id
JOIN companions AS companion ON companion.id = relationship.companion_id
WHERE account.external_id = $1
ORDER BY relationship.id;

-- name: relationship
-- Reads a relationship with its user and companion.
SELECT relationship.id, relationship.memory_version, relationship.removals, relationship.memory_count,
    relationship.settings, relationship.operator_settings,
    relationship.consented_at IS NOT NULL AS consented,
    account.external_id AS user_id, account.name AS user_name, account.time_zone,
    account.language, account.region, companion.slug AS companion
FROM relationships AS relationship
JOIN users AS account ON account.id = relationship.user_id
JOIN companions AS companion ON companion.id = relationship.companion_id
WHERE relationship.id = $1;

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

-- name: change_relationship
-- Sets the settings of a relationship.
UPDATE relationships
SET settings = $2, operator_settings = $3, settings_version = settings_version + 1
WHERE id = $1
RETURNING settings_version AS version;

-- name: set_consent
-- Records whether a user agrees to be remembered by a companion, and since when.
-- Who withdraws that leaves no prompts.
WITH prompts AS (
    DELETE FROM reply_prompts WHERE relationship_id = $1 AND NOT $2::boolean
)
UPDATE relationships
SET consented_at = CASE WHEN $2 THEN coalesce(consented_at, $3::timestamptz) END,
    settings_version = settings_version + 1
WHERE id = $1
RETURNING settings_version AS version;

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
-- Lists what was said after a cursor, in one session or all, with the memory each belongs to.
SELECT turn.id::text, turn.session_id, turn.speaker, turn.content AS text, turn.created_at,
    coalesce(memory.id, source.memory_id)::text AS memory
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
LEFT JOIN memory_sources AS source
    ON source.relationship_id = turn.relationship_id AND source.turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id > $2 AND turn.removed_at IS NULL AND turn.content <> ''
    AND turn.event_id IS NULL
    AND ($4::uuid IS NULL OR turn.session_id = $4)
ORDER BY turn.id
LIMIT $3;

-- name: latest_session
-- Finds the latest open session of a relationship that was active since a time.
SELECT id FROM sessions
WHERE relationship_id = $1 AND closed_at IS NULL AND active_at > $2
ORDER BY active_at DESC LIMIT 1;
