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
SET memory_version = memory_version + 1,
    memory_count = memory_count + 1,
    term_count = bond.term_count + $5
FROM stored WHERE bond.id = stored.relationship_id
RETURNING stored.id, bond.memory_version;

-- name: find_memory_of_turn
-- Finds the memory that was made of a turn.
SELECT id, significance, memory_type FROM memories WHERE source_turn_id = $1;

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
    spread.terms AS spread_terms, spread.memories AS spread_memories
FROM chosen
JOIN memories AS memory USING (id)
CROSS JOIN spread
JOIN relationships AS bond ON bond.id = $1
LEFT JOIN worded ON worded.memory_id = memory.id;

-- name: announce_memory
-- Tells every server process what became of a turn.
SELECT pg_notify('foremind_memory', $1);
