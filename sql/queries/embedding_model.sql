-- name: lock_embedding_model
-- Waits for the transactions that store vectors, and lets no other begin until this one ends.
-- Each of them reads which model's vectors it may store.
LOCK TABLE embedding_model IN ACCESS EXCLUSIVE MODE;

-- name: replace_embedding_model
-- Sets the embedding model of a store without vectors.
UPDATE embedding_model SET name = $1, fingerprint = $2, dimension = $3;

-- name: any_passage_vector
-- Finds a passage of a document that has a vector.
SELECT id FROM document_chunks WHERE embedding IS NOT NULL LIMIT 1;

-- name: relationships_after
-- Lists relationships in the order of their ids.
SELECT id FROM relationships WHERE id > $1 ORDER BY id LIMIT $2;

-- name: any_vector_of
-- Finds a vector of a relationship.
SELECT id FROM memories WHERE relationship_id = $1
UNION ALL
SELECT id FROM turns WHERE relationship_id = $1 AND embedding IS NOT NULL
UNION ALL
SELECT id FROM records WHERE relationship_id = $1 AND embedding IS NOT NULL
LIMIT 1;
