-- name: records_of_relationship
-- Lists the newest records of a relationship, oldest first.
SELECT * FROM (
    SELECT id, layer, kind, title, content, refs, details, embedding, made_by, session_id,
        created_at, updated_at, revision, used, used_at
    FROM records WHERE relationship_id = $1
    ORDER BY id DESC LIMIT $2
) AS newest
ORDER BY id;

-- name: layers_state
-- Reads what a process that holds a relationship's records must know beside them.
SELECT layers_version, summarised_turn_id, erasures FROM relationships WHERE id = $1;

-- name: insert_record
-- Stores a record, with a vector only if it is of the store's model.
INSERT INTO records (
    relationship_id, layer, kind, title, content, refs, details, embedding, made_by, session_id,
    created_at, updated_at
)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11
FROM embedding_model
WHERE $8::halfvec IS NULL OR (fingerprint = $12 AND dimension = vector_dims($8::halfvec))
RETURNING id;

-- name: records_size
-- Counts the bytes that the records of a relationship take, with their earlier states.
SELECT coalesce(sum(size), 0)::bigint AS bytes FROM (
    SELECT 256 + octet_length(kind) + octet_length(title) + octet_length(content)
        + octet_length(array_to_string(refs, ' ')) + octet_length(details::text) AS size
    FROM records WHERE relationship_id = $1
    UNION ALL
    SELECT 256 + octet_length(kind) + octet_length(title) + octet_length(content)
    FROM record_revisions WHERE relationship_id = $1
) AS sizes;

-- name: keep_revision
-- Keeps the present state of a record as an earlier one, before it is changed.
INSERT INTO record_revisions (
    relationship_id, record_id, revision, layer, kind, title, content, made_by, replaced_at
)
SELECT relationship_id, id, revision, layer, kind, title, content, made_by, $3
FROM records WHERE id = $2 AND relationship_id = $1
ON CONFLICT DO NOTHING;

-- name: drop_old_revisions
-- Deletes the oldest of the earlier states of a record, beyond a number of them.
-- The last that somebody wrote by hand stays.
DELETE FROM record_revisions
WHERE relationship_id = $1 AND record_id = $2 AND revision <= (
    SELECT revision - $3 FROM records WHERE id = $2
) AND revision <> coalesce((
    SELECT max(revision) FROM record_revisions
    WHERE record_id = $2 AND made_by IN ('user', 'developer')
), 0);

-- name: update_record
-- Changes a record, if it still has the revision that the change was made for (0: any).
UPDATE records
SET kind = $3, title = $4, content = $5, refs = $6, details = $7, embedding = $8, made_by = $9,
    updated_at = $10, revision = revision + 1
WHERE id = $2 AND relationship_id = $1 AND ($11 = 0 OR revision = $11)
RETURNING revision;

-- name: touch_details
-- Changes what is known beside a record's text.
UPDATE records SET details = $3 WHERE id = $2 AND relationship_id = $1;

-- name: note_uses
-- Notes that records of a relationship stood in prompts; no version rises, as no text changes.
UPDATE records AS record
SET used = record.used + given.times, used_at = greatest(record.used_at, given.last)
FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[]) AS given (id, times, last)
WHERE record.relationship_id = $1 AND record.id = given.id;

-- name: let_record_be_found
-- Gives a record the vector that it is found by, where it has none.
UPDATE records SET embedding = $3 WHERE id = $2 AND relationship_id = $1 AND embedding IS NULL;

-- name: add_sources
-- Notes the turns and records that a record was made of, beside those noted already.
INSERT INTO record_sources (relationship_id, record_id, turn_id, source_id)
(
    SELECT $1::bigint, $2::bigint, turn, NULL::bigint FROM unnest($3::bigint[]) AS turn
    UNION ALL
    SELECT $1::bigint, $2::bigint, NULL, source FROM unnest($4::bigint[]) AS source
)
EXCEPT
SELECT relationship_id, record_id, turn_id, source_id FROM record_sources WHERE record_id = $2;

-- name: records_made_of
-- Lists the records of a relationship that were made of some turns or records, however far.
WITH RECURSIVE made AS (
    SELECT source.record_id AS id
    FROM record_sources AS source JOIN records AS record ON record.id = source.record_id
    WHERE record.relationship_id = $1
        AND (source.turn_id = ANY ($2::bigint[]) OR source.source_id = ANY ($3::bigint[]))
    UNION
    SELECT source.record_id FROM record_sources AS source JOIN made ON made.id = source.source_id
)
SELECT id FROM made;

-- name: records_of_layers
-- Lists the records of a relationship in some layers.
SELECT id FROM records WHERE relationship_id = $1 AND layer = ANY ($2::text[]);

-- name: every_record
-- Lists every record of a relationship.
SELECT id FROM records WHERE relationship_id = $1;

-- name: hand_down_sources
-- Lets what was made of records that go be made of what these were made of.
INSERT INTO record_sources (relationship_id, record_id, turn_id, source_id)
SELECT DISTINCT $1::bigint, made.record_id, origin.turn_id, origin.source_id
FROM record_sources AS made JOIN record_sources AS origin ON origin.record_id = made.source_id
WHERE made.relationship_id = $1 AND made.source_id = ANY ($2::bigint[])
    AND origin.record_id = ANY ($2::bigint[]) AND made.record_id <> ALL ($2::bigint[])
    AND (origin.source_id IS NULL
        OR (origin.source_id <> made.record_id AND origin.source_id <> ALL ($2::bigint[])))
    AND NOT EXISTS (
        SELECT FROM record_sources AS known
        WHERE known.record_id = made.record_id AND known.turn_id IS NOT DISTINCT FROM origin.turn_id
            AND known.source_id IS NOT DISTINCT FROM origin.source_id
    );

-- name: delete_record_sources
-- Deletes what ties records of a relationship to what they were made of, and others to them.
DELETE FROM record_sources
WHERE relationship_id = $1
    AND (record_id = ANY ($2::bigint[]) OR source_id = ANY ($2::bigint[]));

-- name: delete_revisions
-- Deletes the earlier states of records of a relationship.
DELETE FROM record_revisions WHERE relationship_id = $1 AND record_id = ANY ($2::bigint[]);

-- name: delete_records
-- Deletes records of a relationship, after everything that hangs on them.
DELETE FROM records WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
RETURNING layer;

-- name: revisions_of_record
-- Lists the earlier states of a record.
SELECT revision, layer, kind, title, content, made_by, replaced_at FROM record_revisions
WHERE relationship_id = $1 AND record_id = $2 ORDER BY revision;

-- name: revisions_of_relationship
-- Lists the earlier states of all records of a relationship.
SELECT record_id, revision, layer, kind, title, content, made_by, replaced_at
FROM record_revisions WHERE relationship_id = $1 ORDER BY record_id, revision;

-- name: dismiss
-- Notes digests of what no background work may make again.
UPDATE relationships
SET dismissed = ARRAY(SELECT DISTINCT each FROM unnest(dismissed || $2::text[]) AS each)
WHERE id = $1;

-- name: raise_layers_version
-- Marks what is held of a relationship's records as out of date.
UPDATE relationships SET layers_version = layers_version + 1 WHERE id = $1
RETURNING layers_version;

-- name: missing_turns
-- Counts the turns of a list that were removed meanwhile; of what is only old, a memory may be left.
SELECT count(*) FROM turns AS turn
WHERE turn.relationship_id = $1 AND turn.id = ANY ($2::bigint[]) AND turn.removed_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM memories AS memory WHERE memory.source_turn_id = turn.id)
    AND NOT EXISTS (SELECT FROM memory_sources AS again WHERE again.turn_id = turn.id);

-- name: add_audit
-- Notes who did what to a relationship's memory.
INSERT INTO audit (relationship_id, actor, action, subject, happened_at)
VALUES ($1, $2, $3, $4, $5);

-- name: audit_of_relationship
-- Lists the audit trail of a relationship after one entry.
SELECT id::text, actor, action, subject, happened_at FROM audit
WHERE relationship_id = $1 AND id > $2 ORDER BY audit.id LIMIT $3;

-- name: others_with_topics
-- Counts, for each topic of a relationship, the other users of its companion who have it too.
-- Only where the companion's owner and each user agreed to be counted, and never fewer than three.
SELECT lower(own.title) AS title, count(DISTINCT other.relationship_id) AS others
FROM relationships AS bond
JOIN companions AS companion ON companion.id = bond.companion_id
    AND companion.settings @> '{"shares_counts": true}'
JOIN records AS own ON own.relationship_id = bond.id AND own.layer = 'topics'
JOIN relationships AS agreeing ON agreeing.companion_id = bond.companion_id
    AND agreeing.shares_counts AND agreeing.id <> bond.id
JOIN records AS other ON other.relationship_id = agreeing.id AND other.layer = 'topics'
    AND lower(other.title) = lower(own.title)
WHERE bond.id = $1 AND bond.shares_counts
GROUP BY 1
HAVING count(DISTINCT other.relationship_id) >= 3;
