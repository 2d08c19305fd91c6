-- name: export_sessions
-- Reads the sessions of a relationship and their states.
SELECT session.id::text, opened_at, active_at, closed_at, state.task, state.flags
FROM sessions AS session LEFT JOIN session_states AS state
    ON state.relationship_id = session.relationship_id AND state.session_id = session.id
WHERE session.relationship_id = $1 ORDER BY opened_at;

-- name: export_turns
-- Reads the turns that have a text, or that memories or records are derived from.
SELECT id::text, session_id::text AS session, speaker, message_id, reply_to::text, status,
    content AS text, created_at AS said_at, embedding IS NOT NULL AS judged, kept,
    event_id, event_type
FROM turns WHERE relationship_id = $1 AND (
    removed_at IS NULL
    OR EXISTS (SELECT FROM memories WHERE relationship_id = $1 AND source_turn_id = turns.id)
    OR EXISTS (SELECT FROM memory_sources WHERE relationship_id = $1 AND turn_id = turns.id)
    OR EXISTS (SELECT FROM record_sources WHERE relationship_id = $1 AND turn_id = turns.id)
) ORDER BY turns.id;

-- name: export_memories
-- Reads the memories of a relationship, with the turns merged into them.
SELECT id::text, source_turn_id::text AS turn,
    ARRAY(SELECT source.turn_id::text FROM memory_sources AS source
          WHERE source.relationship_id = $1 AND source.memory_id = memory.id
          ORDER BY source.turn_id) AS again,
    content, speaker, memory_type, significance, reasons, created_at, happened_from, happened_to,
    last_used_at, superseded_by::text
FROM memories AS memory WHERE relationship_id = $1 ORDER BY memory.id;

-- name: export_records
-- Reads the records of a relationship with their sources.
SELECT id::text, layer, kind, title, content, refs, details, made_by, session_id::text AS session,
    created_at, updated_at, used, used_at,
    ARRAY(SELECT made_of.turn_id::text FROM record_sources AS made_of
          WHERE made_of.relationship_id = $1 AND made_of.record_id = record.id
              AND made_of.turn_id IS NOT NULL
          ORDER BY made_of.turn_id) AS turns,
    ARRAY(SELECT made_of.source_id::text FROM record_sources AS made_of
          WHERE made_of.relationship_id = $1 AND made_of.record_id = record.id
              AND made_of.source_id IS NOT NULL
          ORDER BY made_of.source_id) AS sources
FROM records AS record WHERE relationship_id = $1 ORDER BY record.id;

-- name: export_progress
-- Reads the cursors of a relationship, and what is to be regenerated or not created again.
SELECT stated_turn_id::text AS stated, noted_turn_id::text AS noted,
    summarised_turn_id::text AS summarised, narrated_turn_id::text AS narrated, dismissed, salt,
    remade::text AS remade
FROM relationships WHERE id = $1;

-- name: export_revisions
-- Reads the revisions of a relationship's records.
SELECT record_id::text AS record, revision, kind, title, content, made_by, replaced_at
FROM record_revisions WHERE relationship_id = $1 ORDER BY record_id, revision;

-- name: export_changes
-- Reads which memories of a relationship were merged or superseded.
SELECT memory_id::text AS memory, change, other_turn_id::text AS turn, reason, changed_at
FROM memory_changes WHERE relationship_id = $1 ORDER BY id;

-- name: export_audit
-- Reads the audit trail of a relationship.
SELECT actor, action, subject, happened_at FROM audit WHERE relationship_id = $1 ORDER BY id;

-- name: ensure_relationship
-- Creates a user's relationship with a companion, unless it exists.
INSERT INTO relationships (id, user_id, companion_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: data_of_relationship
-- Returns a row if a relationship has turns or records.
SELECT true AS found
WHERE EXISTS (SELECT FROM turns WHERE relationship_id = $1 AND removed_at IS NULL)
    OR EXISTS (SELECT FROM records WHERE relationship_id = $1);

-- name: import_session
-- Stores an imported session.
INSERT INTO sessions (relationship_id, opened_at, active_at, closed_at) VALUES ($1, $2, $3, $4)
RETURNING id;

-- name: import_turn
-- Stores an imported turn, unless its user has used the message id.
INSERT INTO turns (
    relationship_id, session_id, user_id, speaker, message_id, reply_to, status, content,
    created_at, embedding, kept, event_id, event_type
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: import_source
-- Links an imported memory to a turn that was merged into it.
INSERT INTO memory_sources (relationship_id, turn_id, memory_id, said_at)
SELECT relationship_id, id, $2, created_at FROM turns WHERE relationship_id = $3 AND id = $1;

-- name: import_expired
-- Marks imported turns whose text has expired.
UPDATE turns SET removed_at = $3 WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: import_usage
-- Sets when an imported memory was last used, and what superseded it.
UPDATE memories SET last_used_at = $3, superseded_by = $4, created_at = $5, version = $6
WHERE relationship_id = $1 AND id = $2;

-- name: import_upto
-- Sets the last record that an imported record was derived from.
UPDATE records SET details = jsonb_set(details, '{upto}', to_jsonb($3::bigint))
WHERE relationship_id = $1 AND id = $2;

-- name: import_dates
-- Sets the dates of an imported record, and a revision above its earlier ones.
UPDATE records SET created_at = $3, updated_at = $4, revision = $5, used = $6, used_at = $7
WHERE relationship_id = $1 AND id = $2;

-- name: import_revision
-- Stores a revision of an imported record.
INSERT INTO record_revisions (
    relationship_id, record_id, revision, layer, kind, title, content, made_by, replaced_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING;

-- name: import_change
-- Stores why an imported memory was merged or superseded.
INSERT INTO memory_changes (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
VALUES ($1, $2, $3, $4, $5, $6);

-- name: import_progress
-- Sets the settings and cursors of an imported relationship.
UPDATE relationships
SET settings = $2, operator_settings = $10, noted_turn_id = $3, summarised_turn_id = $4,
    narrated_turn_id = $5, dismissed = $6::text[], due_at = $7, salt = coalesce($8, salt),
    remade = $9::jsonb, stated_turn_id = $11, settings_version = settings_version + 1
WHERE id = $1
RETURNING settings_version AS version;
