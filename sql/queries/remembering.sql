-- name: lock_relationship
-- Locks a relationship, so that one transaction at a time changes what it remembers.
SELECT erasures FROM relationships WHERE id = $1 FOR NO KEY UPDATE;

-- name: store_turn_vector
-- Stores a turn's vector, if it was made by the store's model and the text is unchanged.
UPDATE turns SET embedding = $2
FROM embedding_model
WHERE relationship_id = $4 AND turns.id = $1 AND fingerprint = $3 AND removed_at IS NULL
    AND content = $5 AND dimension = vector_dims($2::halfvec)
RETURNING turns.id;

-- name: context_window
-- Lists the turns around one in its session, four on either side, with vector and memory.
-- An event has no session, and stands alone.
-- Erased turns are skipped; an expired text is replaced by that of its memory.
SELECT turn.id, turn.speaker, turn.embedding, memory.id AS memory_id,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE memory.content END AS content
FROM (
    (SELECT id FROM turns
     WHERE relationship_id = $2
        AND session_id = (SELECT session_id FROM turns WHERE relationship_id = $2 AND id = $1)
        AND id <= $1
        AND (removed_at IS NULL OR EXISTS (
            SELECT FROM memories WHERE relationship_id = $2 AND source_turn_id = turns.id
        ))
     ORDER BY id DESC LIMIT 5)
    UNION ALL
    (SELECT id FROM turns
     WHERE relationship_id = $2
        AND session_id = (SELECT session_id FROM turns WHERE relationship_id = $2 AND id = $1)
        AND id > $1
        AND (removed_at IS NULL OR EXISTS (
            SELECT FROM memories WHERE relationship_id = $2 AND source_turn_id = turns.id
        ))
     ORDER BY id LIMIT 4)
    UNION ALL
    (SELECT id FROM turns WHERE relationship_id = $2 AND id = $1 AND session_id IS NULL)
) AS near
JOIN turns AS turn ON turn.relationship_id = $2 AND turn.id = near.id
LEFT JOIN memories AS memory
    ON memory.relationship_id = $2 AND memory.source_turn_id = turn.id
ORDER BY turn.id;

-- name: find_memory_of_turn
-- Finds the memory that a turn became, or was merged into.
SELECT id FROM memories WHERE relationship_id = $1 AND source_turn_id = $2
UNION ALL
SELECT memory_id FROM memory_sources WHERE relationship_id = $1 AND turn_id = $2;

-- name: similar_memories
-- Lists the memories nearest to a turn by the vectors of their texts without context.
WITH said AS MATERIALIZED (
    SELECT embedding FROM turns WHERE relationship_id = $1 AND id = $2 AND embedding IS NOT NULL
)
SELECT near.id, near.speaker, near.content, near.significance, near.created_at,
    -(turn.embedding <#> said.embedding) AS cosine
FROM said
CROSS JOIN LATERAL (
    SELECT id, speaker, content, significance, created_at, source_turn_id
    FROM memories
    WHERE relationship_id = $1 AND superseded_by IS NULL
    ORDER BY embedding <#> said.embedding
    LIMIT 10
) AS near
JOIN turns AS turn ON turn.relationship_id = $1 AND turn.id = near.source_turn_id
WHERE turn.embedding IS NOT NULL AND turn.id <> $2
ORDER BY cosine DESC;

-- name: insert_memory
-- Stores a memory with its terms, once per source turn, if its vector is of the store's model.
WITH stored AS (
    INSERT INTO memories (
        relationship_id, created_at, source_turn_id, significance, term_count, memory_type,
        speaker, embedding, content, reasons, happened_from, happened_to, words, session_id, version
    )
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $13, $14, $15, $16, said.session_id, $17
    FROM embedding_model
    LEFT JOIN turns AS said ON said.relationship_id = $1 AND said.id = $3
    WHERE fingerprint = $12 AND dimension = vector_dims($8::halfvec)
    ON CONFLICT (relationship_id, source_turn_id) DO NOTHING
    RETURNING id, relationship_id
), words AS (
    INSERT INTO memory_terms (relationship_id, term, memory_id, frequency)
    SELECT stored.relationship_id, word.term, stored.id, word.frequency
    FROM stored, unnest($10::text[], $11::real[]) AS word (term, frequency)
    ON CONFLICT DO NOTHING -- else Citus would COPY them, which row-level security refuses
)
UPDATE relationships AS relationship
SET memory_count = memory_count + 1, term_count = relationship.term_count + $5
FROM stored WHERE relationship.id = $1
RETURNING stored.id;

-- name: reembed_memory
-- Replaces a memory's vector, and adds the terms that a neighbouring turn contributes.
WITH known AS (
    SELECT term_count FROM memories WHERE id = $1 AND relationship_id = $2
), changed AS (
    UPDATE memories SET embedding = $3, term_count = $4, words = $7, version = $8
    WHERE id = $1 AND relationship_id = $2
), words AS (
    INSERT INTO memory_terms (relationship_id, term, memory_id, frequency)
    SELECT $2, word.term, $1, word.frequency
    FROM known, unnest($5::text[], $6::real[]) AS word (term, frequency)
    ON CONFLICT (relationship_id, term, memory_id) DO UPDATE SET frequency = excluded.frequency
)
UPDATE relationships AS relationship
    SET term_count = relationship.term_count + $4 - known.term_count
FROM known WHERE relationship.id = $2;

-- name: merge_into_memory
-- Merges a repeating turn into a memory, which becomes more significant.
WITH source AS (
    INSERT INTO memory_sources (relationship_id, turn_id, memory_id, said_at)
    VALUES ($2, $3, $1, $4)
), trace AS (
    INSERT INTO memory_changes
        (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
    VALUES ($2, $1, 'merged', $3, $5, $6)
)
UPDATE memories
SET significance = $7, reasons = $8, created_at = greatest(created_at, $4),
    version = $9
WHERE id = $1 AND relationship_id = $2;

-- name: rescore_memory
-- Changes the significance of a memory.
UPDATE memories SET significance = $3, reasons = $4, version = $5
WHERE id = $1 AND relationship_id = $2;

-- name: insert_fact
-- Stores a fact that a memory states.
INSERT INTO memory_facts (relationship_id, speaker, slot, value, memory_id, said_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING;

-- name: contradicting_facts
-- Lists the memories that state another value of a fact.
SELECT memory_id, said_at FROM memory_facts
WHERE relationship_id = $1 AND speaker = $2 AND slot = $3 AND value <> $4 AND memory_id <> $5;

-- name: supersede_memory
-- Marks a memory as superseded, unless it is already.
WITH marked AS (
    UPDATE memories SET superseded_by = $3, version = $6
    WHERE id = $1 AND relationship_id = $2 AND superseded_by IS NULL
    RETURNING id
)
INSERT INTO memory_changes (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
SELECT $2, marked.id, 'superseded', newer.source_turn_id, $4, $5
FROM marked JOIN memories AS newer ON newer.relationship_id = $2 AND newer.id = $3
-- Else Citus would COPY it, which row-level security refuses.
ON CONFLICT DO NOTHING;

-- name: raise_memory_version
-- Raises a relationship's memory version, which makes its cached contexts stale.
UPDATE relationships SET memory_version = memory_version + 1 WHERE id = $1
RETURNING memory_version AS version;

-- name: enqueue_turns
-- Has a step process turns one by one from now on; anew, if they wait for it already.
INSERT INTO curation_steps AS known
    (relationship_id, step, turn_id, lane, place, companion_id, due_at, since)
SELECT relationship.id, $2, turn.id, $2, $4, relationship.companion_id, $5, $5
FROM relationships AS relationship, unnest($3::bigint[]) AS turn (id)
WHERE relationship.id = $1
ON CONFLICT (relationship_id, step, turn_id) DO UPDATE
SET due_at = excluded.due_at, since = excluded.since, place = excluded.place,
    marks = known.marks + 1, attempts = 0, code = NULL, held_at = NULL;

-- name: dequeue_turn
-- Records that steps have processed a turn.
DELETE FROM curation_steps
WHERE relationship_id = $1 AND turn_id = $2 AND step = ANY ($3::text[]);

-- name: announce
-- Notifies every server process when the transaction commits, in order.
SELECT pg_notify('foremind_announcements', payload)
FROM unnest($1::text[]) WITH ORDINALITY AS announcement (payload, number)
ORDER BY number;
