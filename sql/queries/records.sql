-- name: records_of_relationship
-- Lists the newest records of a relationship, oldest first, each with the layers' state.
-- One row without a record stands for a relationship that has none.
SELECT bond.layers_version, bond.summarised_turn_id, bond.erasures, users.name AS user_name, newest.*
FROM relationships AS bond
JOIN users ON users.id = bond.user_id
LEFT JOIN (
    SELECT id, layer, kind, title, content, refs, details, embedding AS vector, made_by, session_id,
        created_at, updated_at, last_source_at, revision, used, used_at
    FROM records WHERE relationship_id = $1
    ORDER BY id DESC LIMIT $2
) AS newest ON true
WHERE bond.id = $1
ORDER BY newest.id;

-- name: find_record
-- Reads one record.
SELECT id, layer, kind, title, content, refs, details, embedding AS vector, made_by, session_id,
    created_at, updated_at, last_source_at, revision, used, used_at
FROM records WHERE relationship_id = $1 AND id = $2;

-- name: layers_state
-- Reads the versions and cursors that a cache of a relationship's records depends on.
SELECT bond.layers_version, bond.summarised_turn_id, bond.erasures, users.name AS user_name
FROM relationships AS bond JOIN users ON users.id = bond.user_id WHERE bond.id = $1;

-- name: insert_record
-- Stores a record with what it is derived from, unless a turn of that was erased.
-- One that expired and has a memory counts as there.
-- It is dated by the newest of these turns, failing that of these records. A vector must be of the
-- store's model.
WITH gone AS MATERIALIZED (
    SELECT count(*) AS turns FROM turns AS turn
    WHERE turn.relationship_id = $1 AND turn.id = ANY ($13::bigint[]) AND turn.removed_at IS NOT NULL
        AND NOT EXISTS (SELECT FROM memories
                        WHERE relationship_id = $1 AND source_turn_id = turn.id)
        AND NOT EXISTS (SELECT FROM memory_sources
                        WHERE relationship_id = $1 AND turn_id = turn.id)
), record AS (
    INSERT INTO records (
        relationship_id, layer, kind, title, content, refs, details, embedding, made_by, session_id,
        created_at, updated_at, last_source_at
    )
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, coalesce((
        SELECT max(created_at) FROM turns
        WHERE relationship_id = $1 AND id = ANY ($13::bigint[])
    ), (
        SELECT max(coalesce(last_source_at, updated_at)) FROM records
        WHERE relationship_id = $1 AND id = ANY ($14::bigint[])
    ))
    FROM embedding_model, gone
    WHERE gone.turns = 0
        AND ($8::halfvec IS NULL OR (fingerprint = $12 AND dimension = vector_dims($8::halfvec)))
    RETURNING id
), sources AS (
    INSERT INTO record_sources (relationship_id, record_id, turn_id, source_id)
    SELECT $1, record.id, source.turn_id, source.record_id
    FROM record, unnest($13::bigint[], $14::bigint[]) AS source (turn_id, record_id)
    ON CONFLICT DO NOTHING
)
SELECT (SELECT id FROM record) AS id, turns AS gone FROM gone;

-- name: records_size
-- Sums the size of a relationship's records and their revisions in bytes.
SELECT coalesce(sum(size), 0)::bigint AS bytes FROM (
    SELECT 256 + octet_length(kind) + octet_length(title) + octet_length(content)
        + octet_length(array_to_string(refs, ' ')) + octet_length(details::text) AS size
    FROM records WHERE relationship_id = $1
    UNION ALL
    SELECT 256 + octet_length(kind) + octet_length(title) + octet_length(content)
    FROM record_revisions WHERE relationship_id = $1
) AS sizes;

-- name: change_record
-- Changes a record, if it has the expected revision (0: any), and keeps what it was as a revision.
-- Beyond a number the oldest revisions go, but not the last one that a person wrote. What it is
-- derived from now is added and dates it, as in add_sources, unless a turn of that was erased.
WITH gone AS MATERIALIZED (
    SELECT count(*) AS turns FROM turns AS turn
    WHERE turn.relationship_id = $1 AND turn.id = ANY ($12::bigint[]) AND turn.removed_at IS NOT NULL
        AND NOT EXISTS (SELECT FROM memories
                        WHERE relationship_id = $1 AND source_turn_id = turn.id)
        AND NOT EXISTS (SELECT FROM memory_sources
                        WHERE relationship_id = $1 AND turn_id = turn.id)
), former AS MATERIALIZED (
    SELECT id, revision, layer, kind, title, content, made_by,
        CASE WHEN made_by IN ('user', 'developer') THEN revision ELSE coalesce((
            SELECT max(older.revision) FROM record_revisions AS older
            WHERE older.relationship_id = $1 AND older.record_id = $2
                AND older.made_by IN ('user', 'developer')
        ), 0) END AS by_person
    FROM records CROSS JOIN gone
    WHERE relationship_id = $1 AND id = $2 AND ($11::bigint = 0 OR revision = $11) AND turns = 0
), kept AS (
    INSERT INTO record_revisions (
        relationship_id, record_id, revision, layer, kind, title, content, made_by, replaced_at
    )
    SELECT $1, id, revision, layer, kind, title, content, made_by, $10::timestamptz FROM former
    ON CONFLICT DO NOTHING
), dropped AS (
    DELETE FROM record_revisions AS older USING former
    WHERE older.relationship_id = $1 AND older.record_id = $2
        AND older.revision <= former.revision + 1 - $14::integer
        AND older.revision <> former.by_person
), known AS MATERIALIZED (
    SELECT turn_id, source_id FROM record_sources WHERE relationship_id = $1 AND record_id = $2
    UNION
    SELECT source.turn_id, source.record_id
    FROM unnest($12::bigint[], $13::bigint[]) AS source (turn_id, record_id)
), sources AS (
    INSERT INTO record_sources (relationship_id, record_id, turn_id, source_id)
    SELECT $1, former.id, source.turn_id, source.record_id
    FROM former, unnest($12::bigint[], $13::bigint[]) AS source (turn_id, record_id)
    ON CONFLICT DO NOTHING
), changed AS (
    UPDATE records
    SET kind = $3, title = $4, content = $5, refs = $6, details = $7, embedding = $8,
        other_embedding = NULL, made_by = $9,
        updated_at = $10, revision = records.revision + 1,
        last_source_at = CASE WHEN cardinality($12::bigint[]) > 0 THEN coalesce((
            SELECT max(turn.created_at) FROM known JOIN turns AS turn
                ON turn.relationship_id = $1 AND turn.id = known.turn_id
        ), (
            SELECT max(coalesce(made_of.last_source_at, made_of.updated_at))
            FROM known JOIN records AS made_of
                ON made_of.relationship_id = $1 AND made_of.id = known.source_id
        )) END
    FROM former WHERE records.relationship_id = $1 AND records.id = former.id
    RETURNING records.revision
)
SELECT (SELECT revision FROM changed) AS revision, turns AS gone FROM gone;

-- name: update_details
-- Replaces a record's details, without a new revision.
UPDATE records SET details = $3 WHERE id = $2 AND relationship_id = $1;

-- name: add_uses
-- Counts uses of records in prompts; no version rises, as no text changes.
UPDATE records AS record
SET used = record.used + given.times, used_at = greatest(record.used_at, given.last)
FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[]) AS given (id, times, last)
WHERE record.relationship_id = $1 AND record.id = given.id;

-- name: add_sources
-- Adds turns and records that a record is derived from, without duplicates, and dates it again.
-- Each source is a turn or a record; the other is NULL. The newest turn counts, failing that the
-- newest record.
WITH known AS MATERIALIZED (
    SELECT turn_id, source_id FROM record_sources WHERE relationship_id = $1 AND record_id = $2
    UNION
    SELECT source.turn_id, source.record_id
    FROM unnest($3::bigint[], $4::bigint[]) AS source (turn_id, record_id)
), added AS (
    INSERT INTO record_sources (relationship_id, record_id, turn_id, source_id)
    SELECT $1, $2, turn_id, source_id FROM known
    ON CONFLICT DO NOTHING
)
UPDATE records SET last_source_at = coalesce((
    SELECT max(turn.created_at) FROM known JOIN turns AS turn
        ON turn.relationship_id = $1 AND turn.id = known.turn_id
), (
    SELECT max(coalesce(made_of.last_source_at, made_of.updated_at))
    FROM known JOIN records AS made_of
        ON made_of.relationship_id = $1 AND made_of.id = known.source_id
))
WHERE relationship_id = $1 AND id = $2;

-- name: derived_records
-- Lists the records derived from turns or records, directly or indirectly.
WITH RECURSIVE made AS (
    SELECT record_id AS id FROM record_sources
    WHERE relationship_id = $1
        AND (turn_id = ANY ($2::bigint[]) OR source_id = ANY ($3::bigint[]))
    UNION
    SELECT source.record_id
    FROM record_sources AS source JOIN made ON made.id = source.source_id
    WHERE source.relationship_id = $1
)
SELECT id FROM made;

-- name: records_of_layers
-- Lists the records of some layers.
SELECT id FROM records WHERE relationship_id = $1 AND layer = ANY ($2::text[]);

-- name: all_records
-- Lists all records of a relationship.
SELECT id FROM records WHERE relationship_id = $1;

-- name: inherit_sources
-- Gives what was derived from records that are deleted the sources of these.
INSERT INTO record_sources (relationship_id, record_id, turn_id, source_id)
SELECT DISTINCT $1::bigint, made.record_id, origin.turn_id, origin.source_id
FROM record_sources AS made
JOIN record_sources AS origin
    ON origin.relationship_id = made.relationship_id AND origin.record_id = made.source_id
WHERE made.relationship_id = $1 AND made.source_id = ANY ($2::bigint[])
    AND origin.record_id = ANY ($2::bigint[]) AND made.record_id <> ALL ($2::bigint[])
    AND (origin.source_id IS NULL
        OR (origin.source_id <> made.record_id AND origin.source_id <> ALL ($2::bigint[])))
ON CONFLICT DO NOTHING;

-- name: delete_records
-- Deletes records with their revisions, and the links to their sources and of others to them.
WITH links AS (
    DELETE FROM record_sources
    WHERE relationship_id = $1
        AND (record_id = ANY ($2::bigint[]) OR source_id = ANY ($2::bigint[]))
), revisions AS (
    DELETE FROM record_revisions WHERE relationship_id = $1 AND record_id = ANY ($2::bigint[])
)
DELETE FROM records WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
RETURNING layer;

-- name: revisions_of_record
-- Lists the revisions of a record.
SELECT revision, layer, kind, title, content, made_by, replaced_at FROM record_revisions
WHERE relationship_id = $1 AND record_id = $2 ORDER BY revision;

-- name: revisions_of_relationship
-- Lists the revisions of all records of a relationship.
SELECT record_id, revision, layer, kind, title, content, made_by, replaced_at
FROM record_revisions WHERE relationship_id = $1 ORDER BY record_id, revision;

-- name: add_dismissed
-- Adds digests of what background work must not create again.
UPDATE relationships
SET dismissed = ARRAY(SELECT DISTINCT digest FROM unnest(dismissed || $2::text[]) AS digest)
WHERE id = $1;

-- name: raise_layers_version
-- Raises the layers version, which makes cached records stale.
UPDATE relationships SET layers_version = layers_version + 1 WHERE id = $1
RETURNING layers_version AS version;

-- name: add_audit
-- Adds an entry to the audit trail.
INSERT INTO audit (relationship_id, actor, action, subject, happened_at)
VALUES ($1, $2, $3, $4, $5);

-- name: audit_of_relationship
-- Lists the audit trail of a relationship after a cursor.
SELECT id::text, actor, action, subject, happened_at FROM audit
WHERE relationship_id = $1 AND id > $2 ORDER BY audit.id LIMIT $3;
