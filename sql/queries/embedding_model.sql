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

-- name: hold_embedding_model
-- Holds the lock that shows that a process uses a model, until its connection ends.
SELECT pg_advisory_lock_shared(hashtextextended('foremind.embedding_model ' || $1::text, 0));

-- name: lock_unused_model
-- Takes the lock that no process holds which uses a model; false if one does.
SELECT pg_try_advisory_lock(hashtextextended('foremind.embedding_model ' || $1::text, 0));

-- name: lock_reembedding
-- Takes the lock of whoever replaces the model; false if somebody has it.
SELECT pg_try_advisory_lock(hashtextextended('foremind.reembedding', 0));

-- name: begin_reembedding
-- Records the model that makes the vectors in the other columns.
UPDATE embedding_model SET other_fingerprint = $1;

-- name: switch_embedding_model
-- Makes the vectors in the other columns those that are searched; the former ones are the others.
UPDATE embedding_model
SET earlier = array_append(array_remove(array_remove(earlier, name), $1), name),
    other_fingerprint = fingerprint, name = $1, fingerprint = $2, dimension = $3,
    swapped = NOT swapped;

-- name: empty_other_vectors
-- Empties the other columns, with their index, and records it.
ALTER TABLE turns DROP COLUMN other_embedding, ADD COLUMN other_embedding halfvec;
ALTER TABLE memories DROP COLUMN other_embedding, ADD COLUMN other_embedding halfvec;
ALTER TABLE records DROP COLUMN other_embedding, ADD COLUMN other_embedding halfvec;
ALTER TABLE document_chunks DROP COLUMN other_embedding, ADD COLUMN other_embedding halfvec;
UPDATE embedding_model SET other_fingerprint = NULL;

-- name: is_index_valid
-- Returns whether there is an index of a name that queries can use.
SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)), false);

-- name: relationships_to_reembed
-- Lists relationships in the order of their ids, with versions and what their memories depend on.
SELECT relationship.id, relationship.memory_version, relationship.layers_version,
    account.name AS user_name, companion.name AS companion_name,
    companion.settings AS companion_settings, relationship.settings, relationship.operator_settings
FROM relationships AS relationship
JOIN users AS account ON account.id = relationship.user_id
JOIN companions AS companion ON companion.id = relationship.companion_id
WHERE relationship.id > $1 ORDER BY relationship.id LIMIT $2;

-- name: turns_to_reembed
-- Lists turns with a vector that have none of the other model.
-- An expired text is replaced by that of its memory.
SELECT turn.id, turn.embedding AS known,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE memory.content END AS content
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id > $2 AND turn.embedding IS NOT NULL
    AND turn.other_embedding IS NULL AND (turn.removed_at IS NULL OR memory.id IS NOT NULL)
ORDER BY turn.id LIMIT $3;

-- name: fill_turns
-- Stores vectors of another model for turns whose vectors are still those that were read.
UPDATE turns SET other_embedding = made.vector
FROM unnest($2::bigint[], $3::halfvec[], $4::halfvec[]) AS made (id, known, vector)
WHERE turns.relationship_id = $1 AND turns.id = made.id AND turns.embedding = made.known;

-- name: records_to_reembed
-- Lists records with a vector that have none of the other model.
SELECT id, embedding AS known, title, content FROM records
WHERE relationship_id = $1 AND id > $2 AND embedding IS NOT NULL AND other_embedding IS NULL
ORDER BY id LIMIT $3;

-- name: fill_records
-- Stores vectors of another model for records whose vectors are still those that were read.
UPDATE records SET other_embedding = made.vector
FROM unnest($2::bigint[], $3::halfvec[], $4::halfvec[]) AS made (id, known, vector)
WHERE records.relationship_id = $1 AND records.id = made.id AND records.embedding = made.known;

-- name: memories_to_reembed
-- Lists memories that have no vector of the other model, with the turns that they were made of.
SELECT memory.id, memory.embedding AS known, memory.content, memory.source_turn_id, turn.session_id
FROM memories AS memory
LEFT JOIN turns AS turn ON turn.relationship_id = $1 AND turn.id = memory.source_turn_id
WHERE memory.relationship_id = $1 AND memory.id > $2 AND memory.embedding IS NOT NULL
    AND memory.other_embedding IS NULL
ORDER BY memory.id LIMIT $3;

-- name: fill_memories
-- Stores vectors of another model for memories whose vectors are still those that were read.
UPDATE memories SET other_embedding = made.vector
FROM unnest($2::bigint[], $3::halfvec[], $4::halfvec[]) AS made (id, known, vector)
WHERE memories.relationship_id = $1 AND memories.id = made.id AND memories.embedding = made.known;

-- name: passages_to_reembed
-- Lists passages of documents with a vector that have none of the other model.
SELECT id, embedding AS known, content FROM document_chunks
WHERE id > $1 AND embedding IS NOT NULL AND other_embedding IS NULL ORDER BY id LIMIT $2;

-- name: fill_passages
-- Stores vectors of another model for passages whose vectors are still those that were read.
UPDATE document_chunks SET other_embedding = made.vector
FROM unnest($1::bigint[], $2::halfvec[], $3::halfvec[]) AS made (id, known, vector)
WHERE document_chunks.id = made.id AND document_chunks.embedding = made.known;
