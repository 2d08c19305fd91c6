-- name: lock_relationship
-- Lets the memories of a relationship be changed by one transaction at a time.
SELECT FROM relationships WHERE id = $1 FOR NO KEY UPDATE;

-- name: keep_turn_vector
-- Keeps the vector of a turn's exact text, if it is of the store's model and the text is the same.
UPDATE turns SET embedding = $2
FROM embedding_model
WHERE turns.id = $1 AND relationship_id = $4 AND fingerprint = $3 AND removed_at IS NULL
    AND content = $5 AND dimension = vector_dims($2::halfvec)
RETURNING turns.id;

-- name: exchange_around
-- Lists the turns around one in its session, four on either side, with vector and memory.
-- What was removed does not count; where only the memory of a turn is kept, that is read.
SELECT turn.id, turn.speaker, turn.embedding, memory.id AS memory_id,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE memory.content END AS content
FROM (
    (SELECT id FROM turns
     WHERE session_id = (SELECT session_id FROM turns WHERE id = $1 AND relationship_id = $2)
        AND id <= $1
        AND (removed_at IS NULL OR EXISTS (SELECT FROM memories WHERE source_turn_id = turns.id))
     ORDER BY id DESC LIMIT 5)
    UNION ALL
    (SELECT id FROM turns
     WHERE session_id = (SELECT session_id FROM turns WHERE id = $1 AND relationship_id = $2)
        AND id > $1
        AND (removed_at IS NULL OR EXISTS (SELECT FROM memories WHERE source_turn_id = turns.id))
     ORDER BY id LIMIT 4)
) AS near
JOIN turns AS turn USING (id)
LEFT JOIN memories AS memory ON memory.source_turn_id = turn.id
ORDER BY turn.id;

-- name: find_memory_of_turn
-- Finds the memory that a turn was made into, or merged into.
SELECT id FROM memories WHERE source_turn_id = $1
UNION ALL
SELECT memory_id FROM memory_sources WHERE turn_id = $1;

-- name: similar_memories
-- Lists the memories that come nearest to a turn whose vector is kept, by their bare texts.
WITH said AS MATERIALIZED (
    SELECT embedding FROM turns WHERE id = $2 AND relationship_id = $1 AND embedding IS NOT NULL
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
JOIN turns AS turn ON turn.id = near.source_turn_id
WHERE turn.embedding IS NOT NULL AND turn.id <> $2
ORDER BY cosine DESC;

-- name: insert_memory
-- Stores a memory once per source turn, with its words, if its vector is of the store's model.
WITH stored AS (
    INSERT INTO memories (
        relationship_id, created_at, source_turn_id, significance, term_count, memory_type,
        speaker, embedding, content, reasons, happened_from, happened_to, words, session_id, version
    )
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $13, $14, $15, $16, said.session_id, $17
    FROM embedding_model
    LEFT JOIN turns AS said ON said.id = $3 AND said.relationship_id = $1
    WHERE fingerprint = $12 AND dimension = vector_dims($8::halfvec)
    ON CONFLICT (source_turn_id) DO NOTHING
    RETURNING id, relationship_id
), words AS (
    INSERT INTO memory_terms (relationship_id, term, memory_id, frequency)
    SELECT stored.relationship_id, word.term, stored.id, word.frequency
    FROM stored, unnest($10::text[], $11::real[]) AS word (term, frequency)
)
UPDATE relationships AS bond
SET memory_count = memory_count + 1, term_count = bond.term_count + $5
FROM stored WHERE bond.id = stored.relationship_id
RETURNING stored.id;

-- name: reread_memory
-- Gives a memory a new vector, and counts the words that a turn beside it brought.
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
UPDATE relationships AS bond SET term_count = bond.term_count + $4 - known.term_count
FROM known WHERE bond.id = $2;

-- name: merge_into_memory
-- Lets a memory stand for one more turn that says the same, said again and so more significant.
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
-- Gives a memory of a relationship another significance.
UPDATE memories SET significance = $3, reasons = $4, version = $5
WHERE id = $1 AND relationship_id = $2;

-- name: state_fact
-- Notes what a memory states.
INSERT INTO memory_facts (relationship_id, speaker, slot, value, memory_id, said_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING;

-- name: contradicting_facts
-- Lists the memories that state something else about the same.
SELECT memory_id, said_at FROM memory_facts
WHERE relationship_id = $1 AND speaker = $2 AND slot = $3 AND value <> $4 AND memory_id <> $5;

-- name: supersede_memory
-- Marks a memory as no longer true since another turn, unless it is already.
WITH marked AS (
    UPDATE memories SET superseded_by = $3, version = $6
    WHERE id = $1 AND relationship_id = $2 AND superseded_by IS NULL
    RETURNING id
)
INSERT INTO memory_changes (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
SELECT $2, marked.id, 'superseded', newer.source_turn_id, $4, $5
FROM marked JOIN memories AS newer ON newer.id = $3;

-- name: raise_memory_version
-- Raises a relationship's memory version: everything prepared for it is out of date.
UPDATE relationships SET memory_version = memory_version + 1 WHERE id = $1
RETURNING memory_version;

-- name: enqueue
-- Adds a job for a turn.
SELECT foremind_enqueue($1, $2, $3);

-- name: announce
-- Tells every server process what happened.
SELECT pg_notify('foremind_memory', $1);
