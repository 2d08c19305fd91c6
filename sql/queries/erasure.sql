-- name: erasure_state
-- Reads the versions by which later changes are noticed, and the player's language; without a lock.
SELECT relationship.erasures, relationship.memory_version, relationship.layers_version,
    (SELECT coalesce(max(id), 0) FROM turns WHERE relationship_id = $1) AS last_turn,
    coalesce(account.language, 'en') AS language
FROM relationships AS relationship JOIN users AS account ON account.id = relationship.user_id
WHERE relationship.id = $1;

-- name: transcript_texts
-- Reads a batch of turns that have a text or a memory, with memory and vector.
-- An expired text is replaced by that of its memory. What happened counts as what the user said:
-- replies are based on it.
SELECT turn.id, turn.session_id,
    CASE WHEN turn.event_id IS NULL THEN turn.speaker ELSE 'user' END AS speaker, turn.reply_to, turn.removed_at IS NULL AS alive,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE coalesce(memory.content, '') END
        AS content,
    halfvec_send(turn.embedding) AS vector, memory.id AS memory_id
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id > $2
    AND (turn.removed_at IS NULL OR memory.id IS NOT NULL)
ORDER BY turn.id LIMIT $3;

-- name: record_texts
-- Reads a batch of records with everything that they say.
SELECT id, layer, kind, made_by, title, content, refs, details::text AS details,
    ARRAY(SELECT made_of.turn_id FROM record_sources AS made_of
          WHERE made_of.relationship_id = $1 AND made_of.record_id = record.id
              AND made_of.turn_id IS NOT NULL) AS turns
FROM records AS record WHERE relationship_id = $1 AND id > $2 ORDER BY id LIMIT $3;

-- name: revision_texts
-- Reads a batch of earlier revisions, all those of a record together.
SELECT record_id AS id, revision, made_by, kind, title, content
FROM record_revisions
WHERE relationship_id = $1 AND record_id > $2
    AND record_id <= coalesce((
        SELECT DISTINCT record_id FROM record_revisions
        WHERE relationship_id = $1 AND record_id > $2 ORDER BY record_id OFFSET $3 LIMIT 1
    ), 9223372036854775807)
ORDER BY record_id, revision;

-- name: turns_of_memories
-- Lists the turns that memories of a relationship are derived from.
SELECT source_turn_id AS id FROM memories
WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND source_turn_id IS NOT NULL
UNION
SELECT turn_id FROM memory_sources
WHERE relationship_id = $1 AND memory_id = ANY ($2::bigint[]);

-- name: memories_of_turns
-- Lists the memories of a relationship that were made from turns.
SELECT id FROM memories WHERE relationship_id = $1 AND source_turn_id = ANY ($2::bigint[]);

-- name: turns_of_session
-- Lists the turns of a session.
SELECT id FROM turns WHERE relationship_id = $1 AND session_id::text = $2;

-- name: older_memories
-- Lists memories that were last said before the time that is given for their type.
SELECT memory.id
FROM memories AS memory
JOIN unnest($2::text[], $3::timestamptz[]) AS given (memory_type, before)
    ON given.memory_type = memory.memory_type
WHERE memory.relationship_id = $1 AND memory.created_at < given.before
ORDER BY memory.id LIMIT $4;

-- name: delete_memory_data
-- Deletes the terms, facts and history of memories, and updates what referred to them.
WITH gone AS MATERIALIZED (
    SELECT id, term_count FROM memories WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
), freed AS (
    UPDATE memories SET superseded_by = NULL, version = $4
    WHERE relationship_id = $1 AND superseded_by = ANY ($2::bigint[])
        AND id <> ALL ($2::bigint[])
), words AS (
    DELETE FROM memory_terms WHERE relationship_id = $1 AND memory_id = ANY ($2::bigint[])
), facts AS (
    DELETE FROM memory_facts WHERE relationship_id = $1 AND memory_id = ANY ($2::bigint[])
), traces AS (
    DELETE FROM memory_changes
    WHERE relationship_id = $1
        AND (memory_id = ANY ($2::bigint[]) OR other_turn_id = ANY ($3::bigint[]))
)
UPDATE relationships
SET memory_count = memory_count - (SELECT count(*) FROM gone),
    term_count = term_count - coalesce((SELECT sum(term_count) FROM gone), 0)
WHERE id = $1
RETURNING (SELECT count(*) FROM gone) AS memories;

-- name: delete_memory_sources
-- Deletes the links between turns and memories.
DELETE FROM memory_sources
WHERE relationship_id = $1
    AND (turn_id = ANY ($3::bigint[]) OR memory_id = ANY ($2::bigint[]));

-- name: delete_memories
-- Deletes memories, after everything that refers to them.
DELETE FROM memories WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: erase_turns
-- Deletes text and vector of turns; the row remains, marked as removed.
WITH before AS MATERIALIZED (
    SELECT id FROM turns
    WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND removed_at IS NULL
), emptied AS (
    UPDATE turns SET content = '', place = '', embedding = NULL, other_embedding = NULL,
        removed_at = coalesce(removed_at, $3)
    WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
)
SELECT count(*) AS turns FROM before;

-- name: older_turns
-- Lists the oldest turns with a text from before a time.
SELECT id FROM turns
WHERE relationship_id = $1 AND removed_at IS NULL AND created_at < $2 ORDER BY id LIMIT $3;

-- name: expire_turns
-- Deletes the texts of expired turns.
-- A turn with a memory keeps its vector, which context windows need.
WITH expired AS (
    UPDATE turns
    SET content = '', place = '', removed_at = $3,
        embedding = CASE
            WHEN EXISTS (
                SELECT FROM memories WHERE relationship_id = $1 AND source_turn_id = turns.id
            ) THEN embedding END,
        other_embedding = NULL
    WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND removed_at IS NULL
    RETURNING id
)
SELECT count(*) AS turns FROM expired;

-- name: drop_vectors_without_text
-- Deletes the vectors of turns of which neither the text nor a memory is left.
UPDATE turns SET embedding = NULL, other_embedding = NULL
WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND removed_at IS NOT NULL
    AND NOT EXISTS (
        SELECT FROM memories AS memory
        WHERE memory.relationship_id = $1 AND memory.source_turn_id = turns.id
    )
RETURNING id;

-- name: first_turns
-- Lists the oldest turns of a relationship, with or without a text.
SELECT id FROM turns WHERE relationship_id = $1 AND id <= $2 ORDER BY id LIMIT $3;

-- name: replies_after
-- Lists the companion's turns with a text after a turn.
SELECT id FROM turns
WHERE relationship_id = $1 AND id > $2 AND speaker = 'companion' AND removed_at IS NULL
    AND event_id IS NULL
ORDER BY id;

-- name: delete_turns
-- Deletes turns; replies to them elsewhere then answer nothing.
WITH untied AS (
    UPDATE turns SET reply_to = NULL
    WHERE relationship_id = $1 AND reply_to = ANY ($2::bigint[]) AND id <> ALL ($2::bigint[])
)
DELETE FROM turns WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: delete_closed_sessions
-- Deletes closed sessions without turns or records.
DELETE FROM sessions AS session
WHERE session.relationship_id = $1 AND session.closed_at IS NOT NULL
    AND NOT EXISTS (
        SELECT FROM turns AS turn
        WHERE turn.relationship_id = $1 AND turn.session_id = session.id
    )
    AND NOT EXISTS (
        SELECT FROM records AS record
        WHERE record.relationship_id = $1 AND record.session_id = session.id
    );

-- name: reset_relationship
-- Resets settings, digests and cursors to those of a new relationship.
UPDATE relationships
SET settings = '{}',
    operator_settings = operator_settings - '{significance,scratchpad,profile,prompts}'::text[],
    dismissed = '{}', remade = '[]', salt = $2,
    habits_at = NULL, stated_turn_id = 0, noted_turn_id = 0,
    summarised_turn_id = 0, narrated_turn_id = 0
WHERE id = $1;

-- name: user_without_data
-- Finds the user of a relationship in which nothing is stored and no session is open.
SELECT user_id FROM relationships AS relationship
WHERE id = $1
    AND NOT EXISTS (SELECT FROM turns AS turn WHERE turn.relationship_id = $1)
    AND NOT EXISTS (SELECT FROM records AS record WHERE record.relationship_id = $1)
    AND NOT EXISTS (
        SELECT FROM sessions AS session
        WHERE session.relationship_id = $1 AND session.closed_at IS NULL
    );

-- name: another_relationship
-- Finds a relationship that a user has besides one.
SELECT id FROM relationships WHERE user_id = $1 AND id <> $2 LIMIT 1;

-- name: reset_user_profile
-- Resets a user's name and time zone to those of a new user.
UPDATE users SET name = external_id, time_zone = 'UTC', language = NULL, region = NULL
WHERE id = $1;

-- name: correct_memory
-- Replaces the text of a memory and of its turns; expired texts stay deleted.
-- What time it was about is not known of the new text.
WITH said AS (
    UPDATE turns
    SET content = CASE WHEN removed_at IS NULL THEN $4 ELSE '' END, embedding = $5,
        other_embedding = NULL, corrected = true
    WHERE relationship_id = $1 AND id = ANY ($3::bigint[])
)
UPDATE memories SET content = $4, version = $6, happened_from = NULL, happened_to = NULL
WHERE relationship_id = $1 AND id = $2;

-- name: delete_facts
-- Deletes the facts that a memory states.
DELETE FROM memory_facts WHERE relationship_id = $1 AND memory_id = $2;

-- name: insert_memory_facts
-- Stores facts that memories state, with the memory's speaker and time.
INSERT INTO memory_facts (relationship_id, speaker, slot, value, memory_id, said_at)
SELECT $1, memory.speaker, stated.slot, stated.value, memory.id, memory.created_at
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS stated (memory_id, slot, value)
JOIN memories AS memory ON memory.relationship_id = $1 AND memory.id = stated.memory_id
ON CONFLICT DO NOTHING;

-- name: sessions_of_turns
-- Lists the turns of the sessions of some turns, and whether each has a text or a memory.
SELECT turn.session_id, turn.id,
    turn.removed_at IS NULL
        OR EXISTS (
            SELECT FROM memories AS memory
            WHERE memory.relationship_id = $1 AND memory.source_turn_id = turn.id
        ) AS says
FROM turns AS turn
WHERE turn.relationship_id = $1
    AND turn.session_id IN (
        SELECT session_id FROM turns WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
    )
ORDER BY turn.session_id, turn.id;

-- name: window_turns
-- Reads turns with vector and memory, to embed context windows.
SELECT turn.id, turn.speaker, turn.embedding AS vector, memory.id AS memory_id,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE memory.content END AS content
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id = ANY ($2::bigint[])
ORDER BY turn.id;

-- name: reembed_memories
-- Replaces the vectors and packed terms of memories, and updates the term count.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::halfvec[], $4::real[], $5::bytea[])
        AS replacement (id, embedding, length, words)
), before AS MATERIALIZED (
    SELECT coalesce(sum(memory.term_count), 0) AS length
    FROM memories AS memory WHERE memory.relationship_id = $1 AND memory.id = ANY ($2::bigint[])
), changed AS (
    UPDATE memories AS memory
    SET embedding = given.embedding, other_embedding = NULL, term_count = given.length, words = given.words,
        version = $6
    FROM given WHERE memory.id = given.id AND memory.relationship_id = $1
)
UPDATE relationships
SET term_count = term_count + coalesce((SELECT sum(length) FROM given), 0)
    - (SELECT length FROM before)
WHERE id = $1;

-- name: delete_terms
-- Deletes the terms of memories.
DELETE FROM memory_terms WHERE relationship_id = $1 AND memory_id = ANY ($2::bigint[]);

-- name: insert_terms
-- Inserts the terms of memories.
INSERT INTO memory_terms (relationship_id, memory_id, term, frequency)
SELECT relationship.id, word.memory_id, word.term, word.frequency
FROM relationships AS relationship,
    unnest($2::bigint[], $3::text[], $4::real[]) AS word (memory_id, term, frequency)
WHERE relationship.id = $1;

-- name: record_states
-- Reads records with their authors and everything that they say.
SELECT id, layer, kind, made_by, title, content, refs, details::text AS details,
    ARRAY(SELECT made_of.turn_id FROM record_sources AS made_of
          WHERE made_of.relationship_id = $1 AND made_of.record_id = record.id
              AND made_of.turn_id IS NOT NULL) AS turns
FROM records AS record WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: revisions_of_records
-- Reads the earlier revisions of records in order.
SELECT record_id AS id, revision, made_by, kind, title, content FROM record_revisions
WHERE relationship_id = $1 AND record_id = ANY ($2::bigint[]) ORDER BY record_id, revision;

-- name: remaining_sources
-- Lists the turns that records are derived from and that still have a text or a memory.
SELECT record.id, record.layer, array_agg(turn.id ORDER BY turn.id) AS turns
FROM records AS record
JOIN record_sources AS source
    ON source.relationship_id = record.relationship_id AND source.record_id = record.id
JOIN turns AS turn
    ON turn.relationship_id = source.relationship_id AND turn.id = source.turn_id
WHERE record.relationship_id = $1 AND record.id = ANY ($2::bigint[])
    AND turn.id <> ALL ($3::bigint[])
    AND (turn.removed_at IS NULL
        OR EXISTS (SELECT FROM memories AS memory
                   WHERE memory.relationship_id = $1 AND memory.source_turn_id = turn.id)
        OR EXISTS (SELECT FROM memory_sources AS again
                   WHERE again.relationship_id = $1 AND again.turn_id = turn.id))
GROUP BY record.relationship_id, record.id;

-- name: records_of_whole_history
-- Lists the records derived from the whole history: core memory and inferred profile entries.
SELECT id FROM records
WHERE relationship_id = $1 AND (layer = 'hot' OR (layer = 'profile' AND kind = 'inferred'));

-- name: repeating_turns
-- Lists the turns merged into memories, except those that are erased.
SELECT source.turn_id AS id
FROM memory_sources AS source
JOIN turns AS turn ON turn.relationship_id = source.relationship_id AND turn.id = source.turn_id
WHERE source.relationship_id = $1 AND source.memory_id = ANY ($2::bigint[])
    AND source.turn_id <> ALL ($3::bigint[]) AND turn.removed_at IS NULL
ORDER BY source.turn_id;

-- name: clear_supersession
-- Clears the supersession of a corrected memory, and of the memories that it superseded.
WITH traces AS (
    DELETE FROM memory_changes AS change USING memories AS corrected
    WHERE corrected.relationship_id = $1 AND corrected.id = $2 AND change.relationship_id = $1
        AND change.change = 'superseded'
        AND (change.memory_id = $2 OR change.other_turn_id = corrected.source_turn_id)
)
UPDATE memories SET superseded_by = NULL, version = $3
WHERE relationship_id = $1 AND superseded_by IS NOT NULL AND (id = $2 OR superseded_by = $2);

-- name: supersede_contradicted
-- Marks memories as superseded that a later memory contradicts.
WITH contradicted AS MATERIALIZED (
    SELECT DISTINCT ON (own.memory_id) own.memory_id AS id, own.slot,
        newer.memory_id AS newer, by.source_turn_id AS turn_id
    FROM memory_facts AS own
    JOIN memories AS held ON held.relationship_id = own.relationship_id
        AND held.id = own.memory_id AND held.superseded_by IS NULL
    JOIN memory_facts AS newer ON newer.relationship_id = own.relationship_id
        AND newer.speaker = own.speaker AND newer.slot = own.slot AND newer.value <> own.value
        AND (newer.said_at, newer.memory_id) > (own.said_at, own.memory_id)
    JOIN memories AS by
        ON by.relationship_id = newer.relationship_id AND by.id = newer.memory_id
    WHERE own.relationship_id = $1
    ORDER BY own.memory_id, newer.said_at, newer.memory_id
), traced AS (
    INSERT INTO memory_changes
        (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
    SELECT $1, id, 'superseded', turn_id, 'another ' || slot, $3 FROM contradicted
    WHERE turn_id IS NOT NULL
    ON CONFLICT DO NOTHING -- else Citus would COPY them, which row-level security refuses
)
UPDATE memories AS memory SET superseded_by = contradicted.newer, version = $2
FROM contradicted WHERE memory.id = contradicted.id AND memory.relationship_id = $1;

-- name: replace_record_text
-- Replaces the text of a record of which parts were erased or corrected, and its vector if it has one.
UPDATE records
SET content = $3, updated_at = $4, revision = revision + 1, embedding = coalesce($5, embedding),
    other_embedding = NULL
WHERE relationship_id = $1 AND id = $2;

-- name: replace_revision_text
-- Replaces the text of an earlier revision of which parts were erased.
UPDATE record_revisions SET content = $4
WHERE relationship_id = $1 AND record_id = $2 AND revision = $3;

-- name: revert_record
-- Reverts a record to an earlier revision.
UPDATE records AS record
SET kind = kept.kind, title = kept.title, content = kept.content, made_by = kept.made_by,
    embedding = $4, other_embedding = NULL, refs = '{}', details = '{}', updated_at = $5, last_source_at = NULL,
    revision = record.revision + 1
FROM record_revisions AS kept
WHERE record.relationship_id = $1 AND record.id = $2
    AND kept.relationship_id = $1 AND kept.record_id = record.id AND kept.revision = $3;

-- name: delete_some_revisions
-- Deletes earlier revisions of records.
DELETE FROM record_revisions AS kept
USING unnest($2::bigint[], $3::integer[]) AS gone (record_id, revision)
WHERE kept.relationship_id = $1 AND kept.record_id = gone.record_id
    AND kept.revision = gone.revision;

-- name: detach_record_sources
-- Deletes the links from records to their sources.
DELETE FROM record_sources WHERE relationship_id = $1 AND record_id = ANY ($2::bigint[]);

-- name: add_change_sets
-- Adds turns whose records must be regenerated.
UPDATE relationships SET remade = remade || $2::jsonb WHERE id = $1;

-- name: remove_change_set
-- Removes turns whose records were regenerated.
UPDATE relationships SET remade = coalesce((
    SELECT jsonb_agg(change_set) FROM jsonb_array_elements(remade) AS change_set WHERE change_set <> $2::jsonb
), '[]')
WHERE id = $1;

-- name: raise_erasures
-- Raises the number of removals and, if work in flight is to be refused, of erasures.
-- Prompts are deleted that may hold what was removed; those of replies up to a turn ($3) hold none.
WITH prompts AS (
    DELETE FROM reply_prompts WHERE relationship_id = $1 AND coalesce(reply_id > $3::bigint, true)
)
UPDATE relationships SET removals = removals + 1, erasures = erasures + CASE WHEN $2 THEN 1 ELSE 0 END
WHERE id = $1
RETURNING removals, erasures;

