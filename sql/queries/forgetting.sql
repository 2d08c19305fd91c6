-- name: turns_behind_memories
-- Lists the turns that memories of a relationship were made of.
SELECT source_turn_id AS id FROM memories
WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND source_turn_id IS NOT NULL
UNION
SELECT source.turn_id FROM memory_sources AS source
JOIN memories AS memory ON memory.id = source.memory_id
WHERE memory.relationship_id = $1 AND memory.id = ANY ($2::bigint[]);

-- name: turns_quoting
-- Lists the turns of a relationship that hold what some of its turns said, word for word.
SELECT quoting.id
FROM turns AS said
JOIN turns AS quoting ON quoting.relationship_id = said.relationship_id
    AND position(lower(btrim(said.content)) IN lower(quoting.content)) > 0
WHERE said.relationship_id = $1 AND said.id = ANY ($2::bigint[])
    AND length(btrim(said.content)) >= 8 AND quoting.removed_at IS NULL;

-- name: memories_behind_turns
-- Lists the memories of a relationship that were made of some of its turns.
SELECT id FROM memories WHERE relationship_id = $1 AND source_turn_id = ANY ($2::bigint[]);

-- name: turns_of_relationship
-- Lists every turn of a relationship that was not removed.
SELECT id FROM turns WHERE relationship_id = $1 AND removed_at IS NULL;

-- name: turns_of_session
-- Lists the turns of a session of a relationship that were not removed.
SELECT id FROM turns
WHERE relationship_id = $1 AND session_id::text = $2 AND removed_at IS NULL;

-- name: texts_of_relationship
-- Reads what was said in a relationship.
SELECT id, content FROM turns WHERE relationship_id = $1 AND removed_at IS NULL;

-- name: memories_older
-- Lists the memories of a relationship, of a type, that were last said before a time.
SELECT id FROM memories
WHERE relationship_id = $1 AND memory_type = $2 AND created_at < $3
ORDER BY id LIMIT $4;

-- name: forget_memories
-- Deletes memories of a relationship with their words, facts, sources and traces.
WITH gone AS (
    SELECT id, term_count FROM memories WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
), freed AS (
    UPDATE memories SET superseded_by = NULL,
        version = (SELECT memory_version + 1 FROM relationships WHERE id = $1)
    WHERE relationship_id = $1 AND superseded_by IN (SELECT id FROM gone)
        AND id NOT IN (SELECT id FROM gone)
), words AS (
    DELETE FROM memory_terms WHERE relationship_id = $1 AND memory_id IN (SELECT id FROM gone)
), facts AS (
    DELETE FROM memory_facts WHERE relationship_id = $1 AND memory_id IN (SELECT id FROM gone)
), traces AS (
    DELETE FROM memory_changes
    WHERE relationship_id = $1
        AND (memory_id IN (SELECT id FROM gone) OR other_turn_id = ANY ($3::bigint[]))
)
UPDATE relationships
SET memory_count = memory_count - (SELECT count(*) FROM gone),
    term_count = term_count - coalesce((SELECT sum(term_count) FROM gone), 0)
WHERE id = $1
RETURNING (SELECT count(*) FROM gone) AS memories;

-- name: delete_sources
-- Deletes what ties turns to memories of a relationship.
DELETE FROM memory_sources AS source USING turns AS turn
WHERE turn.id = source.turn_id AND turn.relationship_id = $1
    AND (source.turn_id = ANY ($3::bigint[]) OR source.memory_id = ANY ($2::bigint[]));

-- name: delete_memories
-- Deletes the rows of memories of a relationship, after everything that hangs on them.
DELETE FROM memories WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: empty_turns
-- Takes the text and its vector out of turns of a relationship; that there was a turn remains.
UPDATE turns SET content = '', embedding = NULL, removed_at = $3
WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
RETURNING id;

-- name: forget_words
-- Deletes the words of a memory of a relationship, to be written anew.
DELETE FROM memory_terms WHERE relationship_id = $1 AND memory_id = $2;

-- name: say_instead
-- Puts other words in the place of a memory's and its turns'.
WITH said AS (
    UPDATE turns SET content = $4, embedding = $5
    WHERE relationship_id = $1 AND id = ANY ($3::bigint[])
)
UPDATE memories SET content = $4,
    version = (SELECT memory_version + 1 FROM relationships WHERE id = $1)
WHERE relationship_id = $1 AND id = $2;

-- name: unstate_facts
-- Deletes what a memory of a relationship states.
DELETE FROM memory_facts WHERE relationship_id = $1 AND memory_id = $2;

-- name: restate_fact
-- Notes what a memory states, as its speaker, when it was said.
INSERT INTO memory_facts (relationship_id, speaker, slot, value, memory_id, said_at)
SELECT $1, speaker, $3, $4, id, created_at FROM memories WHERE relationship_id = $1 AND id = $2
ON CONFLICT DO NOTHING;
