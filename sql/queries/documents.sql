-- name: documents_of_companion
-- Lists the documents of a companion, with the number of embedded chunks.
SELECT document.id::text, document.title, document.media_type, document.chunks, document.created_at,
    (SELECT count(*) FROM document_chunks
     WHERE document_id = document.id AND embedding IS NOT NULL) AS embedded
FROM documents AS document WHERE document.companion_id = $1 ORDER BY document.id;

-- name: insert_document
-- Stores a document of a companion.
INSERT INTO documents (companion_id, title, media_type, chunks, created_at)
VALUES ($1, $2, $3, $4, $5)
RETURNING id;

-- name: insert_chunks
-- Stores the chunks of a document, which are embedded later.
INSERT INTO document_chunks (document_id, companion_id, position, content)
SELECT $1, $2, position, content
FROM unnest($3::text[]) WITH ORDINALITY AS chunk (content, position);

-- name: chunks_of_companion
-- Lists the chunks of a companion's documents.
SELECT chunk.id, document.title, chunk.content, halfvec_send(chunk.embedding) AS packed
FROM document_chunks AS chunk JOIN documents AS document ON document.id = chunk.document_id
WHERE chunk.companion_id = $1 ORDER BY chunk.id LIMIT $2;

-- name: chunks_to_embed
-- Lists the chunks of a document that have no vector.
SELECT id, content FROM document_chunks
WHERE document_id = $1 AND embedding IS NULL ORDER BY position;

-- name: store_chunk_vector
-- Stores the vector of a chunk, if it was made by the store's model.
UPDATE document_chunks SET embedding = $2, other_embedding = NULL
FROM embedding_model
WHERE document_chunks.id = $1 AND fingerprint = $3 AND dimension = vector_dims($2::halfvec);

-- name: delete_document
-- Deletes a document of a companion with its chunks.
DELETE FROM documents WHERE id = $1 AND companion_id = $2 RETURNING id;

-- name: unfinished_documents
-- Lists documents with chunks that have no vector.
SELECT DISTINCT document_id AS id, companion_id FROM document_chunks
WHERE embedding IS NULL ORDER BY 1 LIMIT 100;

-- name: raise_documents_version
-- Raises the version of a companion's documents.
UPDATE companions SET documents_version = documents_version + 1 WHERE id = $1
RETURNING documents_version AS version;
