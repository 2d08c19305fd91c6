-- name: embedding_model
-- Reads which embedding model made the vectors of this store.
SELECT name, fingerprint, dimension FROM embedding_model;

-- name: claim_embedding_model
-- Names the embedding model of a store that has none yet.
INSERT INTO embedding_model (name, fingerprint, dimension) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;

-- name: insert_memory
-- Stores a memory once per source turn, with its words, if its vector is of the store's model.
WITH stored AS (
    INSERT INTO memories (
        relationship_id, created_at, source_turn_id, significance, term_count, memory_type,
        speaker, embedding, content
    )
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9
    FROM embedding_model
    WHERE fingerprint = $12 AND dimension = vector_dims($8::halfvec)
    ON CONFLICT (source_turn_id) DO NOTHING
    RETURNING id, relationship_id
), words AS (
    INSERT INTO memory_terms (relationship_id, term, memory_id, frequency)
    SELECT stored.relationship_id, word.term, stored.id, word.frequency
    FROM stored, unnest($10::text[], $11::smallint[]) AS word (term, frequency)
)
UPDATE relationships AS bond
SET memory_count = memory_count + 1, term_count = bond.term_count + $5
FROM stored WHERE bond.id = stored.relationship_id
RETURNING stored.id;

-- name: find_memory_of_turn
-- Finds the memory that was made of a turn.
SELECT id FROM memories WHERE source_turn_id = $1;

-- name: lock_relationship
-- Lets the memories of a relationship be changed by one transaction at a time.
SELECT FROM relationships WHERE id = $1 FOR NO KEY UPDATE;

-- name: keep_turn_vector
-- Keeps the vector of a turn's exact text, if it is of the store's model.
UPDATE turns SET embedding = $2
FROM embedding_model
WHERE turns.id = $1 AND relationship_id = $4 AND fingerprint = $3
    AND dimension = vector_dims($2::halfvec)
RETURNING turns.id;

-- name: exchange_around
-- Lists the turns around one in its session, four on either side, with vector and memory.
SELECT turn.id, turn.speaker, turn.embedding, memory.id AS memory_id
FROM (
    (SELECT id FROM turns
     WHERE session_id = (SELECT session_id FROM turns WHERE id = $1 AND relationship_id = $2)
        AND id <= $1
     ORDER BY id DESC LIMIT 5)
    UNION ALL
    (SELECT id FROM turns
     WHERE session_id = (SELECT session_id FROM turns WHERE id = $1 AND relationship_id = $2)
        AND id > $1
     ORDER BY id LIMIT 4)
) AS near
JOIN turns AS turn USING (id)
LEFT JOIN memories AS memory ON memory.source_turn_id = turn.id
ORDER BY turn.id;

-- name: update_memory_vector
-- Gives a memory of a relationship a new vector.
UPDATE memories SET embedding = $3 WHERE id = $1 AND relationship_id = $2;

-- name: raise_memory_version
-- Marks everything prepared for a relationship as out of date.
UPDATE relationships SET memory_version = memory_version + 1 WHERE id = $1
RETURNING memory_version;

-- name: memory_candidates
-- Finds the nearest and the best worded memories of a relationship, with what scoring them needs.
-- The planner knows nothing of a relationship's size before the next ANALYZE: "IS TRUE" keeps a
-- subquery a hashed lookup, where it would else choose loops that are quadratic. Age and
-- significance are looked up for the best worded one by one, until enough may be recalled.
WITH postings AS MATERIALIZED (
    SELECT memory_id, term, frequency, count(*) OVER (PARTITION BY term) AS memories
    FROM memory_terms
    WHERE relationship_id = $1 AND term = ANY ($3::text[])
), nearest AS (
    SELECT id FROM memories
    WHERE relationship_id = $1 AND created_at >= $5 AND significance >= $4
    ORDER BY embedding <#> $2::halfvec
    LIMIT $6
), worded_score AS (
    -- BM25 without the length of the memory, to choose candidates; the exact score follows.
    SELECT memory_id,
        sum(
            ln(1 + (greatest(memory_count - memories, 0) + 0.5) / (memories + 0.5::float8))
            * frequency / (frequency + 1.5::float8)
        ) AS score
    FROM postings
    CROSS JOIN (SELECT memory_count FROM relationships WHERE id = $1) AS bond
    GROUP BY memory_id
    ORDER BY score DESC
), best_worded AS (
    SELECT memory_id AS id
    FROM worded_score
    CROSS JOIN LATERAL (
        SELECT FROM memories
        WHERE id = memory_id AND created_at >= $5 AND significance >= $4
        LIMIT 1
    ) AS recallable
    ORDER BY score DESC
    LIMIT $6
), chosen AS MATERIALIZED (
    SELECT id FROM nearest UNION SELECT id FROM best_worded
), worded AS MATERIALIZED (
    SELECT memory_id, array_agg(term) AS terms, array_agg(frequency) AS frequencies
    FROM postings
    WHERE (memory_id IN (SELECT id FROM chosen)) IS TRUE
    GROUP BY memory_id
), spread AS (
    SELECT array_agg(term) AS terms, array_agg(memories) AS memories
    FROM (SELECT DISTINCT term, memories FROM postings) AS each_term
)
SELECT memory.id, memory.content, memory.speaker, memory.memory_type, memory.significance,
    memory.created_at, memory.term_count, -(memory.embedding <#> $2::halfvec) AS cosine,
    worded.terms, worded.frequencies,
    bond.memory_count, bond.term_count AS total_terms,
    account.name AS user_name, companion.name AS companion_name,
    spread.terms AS spread_terms, spread.memories AS spread_memories
FROM chosen
JOIN memories AS memory USING (id)
CROSS JOIN spread
JOIN relationships AS bond ON bond.id = $1
JOIN users AS account ON account.id = bond.user_id
JOIN companions AS companion ON companion.id = bond.companion_id
LEFT JOIN worded ON worded.memory_id = memory.id;

-- name: announce_memory
-- Tells every server process what became of a turn.
SELECT pg_notify('foremind_memory', $1);
