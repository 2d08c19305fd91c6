-- name: embedding_model
-- Reads which embedding model made the vectors of this store.
SELECT name, fingerprint, dimension, swapped, other_fingerprint, earlier FROM embedding_model;

-- name: claim_embedding_model
-- Sets the embedding model of a store that has none.
INSERT INTO embedding_model (name, fingerprint, dimension) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;

-- name: memory_candidates
-- Finds a relationship's best memories by vector and by terms, with what ranking needs.
-- Of a time in the query, the nearest memories said or happened then are included. The planner
-- knows nothing of a relationship's size before the next ANALYZE: "IS TRUE" keeps a subquery a hashed
-- lookup, where it would otherwise choose quadratic loops. For lexical candidates, age and
-- significance are looked up one by one until enough are recallable.
WITH postings AS MATERIALIZED (
    SELECT memory_id, term, frequency
    FROM memory_terms
    WHERE relationship_id = $1 AND term = ANY ($3::text[])
), document_frequencies AS MATERIALIZED (
    SELECT term, count(*) AS memories,
        ln(1
            + (greatest((SELECT memory_count FROM relationships WHERE id = $1) - count(*), 0) + 0.5)
            / (count(*) + 0.5::float8)) AS idf
    FROM postings
    GROUP BY term
), nearest AS (
    SELECT id FROM memories
    WHERE relationship_id = $1 AND significance >= $4 AND (created_at >= $5 OR significance >= $7)
    ORDER BY embedding <#> $2::halfvec
    LIMIT $6
), of_that_time AS (
    SELECT id FROM memories
    WHERE relationship_id = $1 AND significance >= $4 AND (created_at >= $5 OR significance >= $7)
        AND cardinality($8::timestamptz[]) > 0
        AND EXISTS (
            SELECT FROM unnest($8::timestamptz[], $9::timestamptz[]) AS asked (since, until)
            WHERE (created_at >= since AND created_at < until)
                OR (happened_from < until AND happened_to > since)
        )
    ORDER BY embedding <#> $2::halfvec
    LIMIT $6 / 2
), lexical_score AS (
    -- BM25 without length normalisation, to choose candidates; the exact score follows. Many tie,
    -- by one common term: of these the newer come first.
    SELECT memory_id, sum(idf * frequency / (frequency + 1.5::float8)) AS score
    FROM postings
    JOIN document_frequencies USING (term)
    GROUP BY memory_id
    ORDER BY score DESC, memory_id DESC
), best_lexical AS (
    SELECT memory_id AS id
    FROM lexical_score
    CROSS JOIN LATERAL (
        SELECT FROM memories
        WHERE relationship_id = $1 AND id = memory_id AND significance >= $4
            AND (created_at >= $5 OR significance >= $7)
        LIMIT 1
    ) AS recallable
    ORDER BY score DESC, memory_id DESC
    LIMIT $6
), chosen AS MATERIALIZED (
    SELECT id FROM nearest UNION SELECT id FROM best_lexical UNION SELECT id FROM of_that_time
), lexical AS MATERIALIZED (
    SELECT memory_id, array_agg(term) AS terms, array_agg(frequency) AS frequencies
    FROM postings
    WHERE (memory_id IN (SELECT id FROM chosen)) IS TRUE
    GROUP BY memory_id
)
SELECT memory.id, memory.content, memory.speaker, memory.memory_type, memory.significance,
    memory.created_at, memory.happened_from, memory.happened_to, memory.place, memory.last_used_at,
    memory.superseded_by IS NOT NULL AS superseded, memory.superseded_by, memory.term_count,
    coalesce(uuid_hash_extended(memory.session_id, 0), memory.id) AS session,
    -(memory.embedding <#> $2::halfvec) AS cosine, lexical.terms, lexical.frequencies,
    relationship.memory_count, relationship.term_count AS total_terms,
    statistics.terms AS statistics_terms, statistics.memories AS statistics_memories
FROM chosen
JOIN memories AS memory ON memory.relationship_id = $1 AND memory.id = chosen.id
JOIN relationships AS relationship ON relationship.id = $1
CROSS JOIN (
    SELECT array_agg(term) AS terms, array_agg(memories) AS memories FROM document_frequencies
) AS statistics
LEFT JOIN lexical ON lexical.memory_id = memory.id;

-- name: mark_memories_used
-- Records that memories were used in a reply.
UPDATE memories SET last_used_at = greatest(last_used_at, $3), version = $4
WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: index_state
-- Reads a relationship's memory version, and its numbers of memories and terms.
SELECT memory_version, memory_count, term_count FROM relationships WHERE id = $1;

-- name: index_changes
-- Reads the memories that changed after a version, up to another, with packed vectors and terms.
-- The upper bound lets the planner see how few they are; without it, it scans the whole table.
SELECT id, speaker, memory_type, content, significance, created_at, happened_from, happened_to,
    place, last_used_at, superseded_by IS NOT NULL AS superseded, superseded_by, term_count,
    coalesce(uuid_hash_extended(session_id, 0), id) AS session,
    halfvec_send(embedding) AS vector, words
FROM memories WHERE relationship_id = $1 AND version > $2 AND version <= $3;
