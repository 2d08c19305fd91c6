-- name: lock_for_forgetting
-- Locks a relationship, and reads what says whether what was found in it is still all there is.
SELECT bond.erasures, bond.memory_version, bond.layers_version,
    (SELECT coalesce(max(id), 0) FROM turns WHERE relationship_id = $1) AS last_turn
FROM relationships AS bond WHERE bond.id = $1 FOR NO KEY UPDATE;

-- name: forgetting_state
-- Reads how far a relationship has come, without locking it.
SELECT bond.erasures, bond.memory_version, bond.layers_version,
    (SELECT coalesce(max(id), 0) FROM turns WHERE relationship_id = $1) AS last_turn
FROM relationships AS bond WHERE bond.id = $1;

-- name: said_texts
-- Reads what was said in a relationship after a turn, some at a time, with memory and vector.
-- Where the text of a turn is no longer kept, its memory says what it said.
SELECT turn.id, turn.session_id, turn.speaker, turn.reply_to, turn.removed_at IS NULL AS alive,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE coalesce(memory.content, '') END
        AS content,
    halfvec_send(turn.embedding) AS vector, memory.id AS memory_id
FROM turns AS turn LEFT JOIN memories AS memory ON memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id > $2
    AND (turn.removed_at IS NULL OR memory.id IS NOT NULL)
ORDER BY turn.id LIMIT $3;

-- name: record_texts
-- Reads everything that the records of a relationship say after a record, some at a time.
SELECT id, layer, kind, made_by, title, content, refs, details::text AS details,
    ARRAY(SELECT made_of.turn_id FROM record_sources AS made_of
          WHERE made_of.record_id = record.id AND made_of.turn_id IS NOT NULL) AS turns
FROM records AS record WHERE relationship_id = $1 AND id > $2 ORDER BY id LIMIT $3;

-- name: revision_texts
-- Reads what records of a relationship said earlier, after a record, all states of some at a time.
SELECT record_id AS id, revision, made_by, kind, title, content
FROM record_revisions
WHERE relationship_id = $1 AND record_id > $2
    AND record_id <= coalesce((
        SELECT DISTINCT record_id FROM record_revisions
        WHERE relationship_id = $1 AND record_id > $2 ORDER BY record_id OFFSET $3 LIMIT 1
    ), 9223372036854775807)
ORDER BY record_id, revision;

-- name: turns_behind_memories
-- Lists the turns that memories of a relationship were made of.
SELECT source_turn_id AS id FROM memories
WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND source_turn_id IS NOT NULL
UNION
SELECT source.turn_id FROM memory_sources AS source
JOIN memories AS memory ON memory.id = source.memory_id
WHERE memory.relationship_id = $1 AND memory.id = ANY ($2::bigint[]);

-- name: memories_behind_turns
-- Lists the memories of a relationship that were made of some of its turns.
SELECT id FROM memories WHERE relationship_id = $1 AND source_turn_id = ANY ($2::bigint[]);

-- name: turns_of_session
-- Lists the turns of a session of a relationship.
SELECT id FROM turns WHERE relationship_id = $1 AND session_id::text = $2;

-- name: memories_of_type
-- Lists the memories of a relationship, of a type, that were last said before a time.
SELECT id FROM memories
WHERE relationship_id = $1 AND memory_type = $2 AND created_at < $3
ORDER BY id LIMIT $4;

-- name: forget_memories
-- Deletes memories of a relationship with their words, facts, sources and traces.
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

-- name: delete_sources
-- Deletes what ties turns to memories of a relationship.
DELETE FROM memory_sources
WHERE relationship_id = $1
    AND (turn_id = ANY ($3::bigint[]) OR memory_id = ANY ($2::bigint[]));

-- name: delete_memories
-- Deletes the rows of memories of a relationship, after everything that hangs on them.
DELETE FROM memories WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: empty_turns
-- Takes the text and its vector out of turns of a relationship; that there was a turn remains.
WITH before AS MATERIALIZED (
    SELECT id FROM turns
    WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND removed_at IS NULL
), emptied AS (
    UPDATE turns SET content = '', embedding = NULL, removed_at = coalesce(removed_at, $3)
    WHERE relationship_id = $1 AND id = ANY ($2::bigint[])
)
SELECT count(*) AS turns FROM before;

-- name: turns_older
-- Lists the first turns of a relationship with a text that were said before a time.
SELECT id FROM turns
WHERE relationship_id = $1 AND removed_at IS NULL AND created_at < $2 ORDER BY id LIMIT $3;

-- name: expire_turns
-- Takes the text out of turns of a relationship whose time is over.
-- A memory goes on being read in its exchange, and needs the vector of its own turn for that.
WITH expired AS (
    UPDATE turns
    SET content = '', removed_at = $3,
        embedding = CASE
            WHEN EXISTS (SELECT FROM memories WHERE source_turn_id = turns.id) THEN embedding END
    WHERE relationship_id = $1 AND id = ANY ($2::bigint[]) AND removed_at IS NULL
    RETURNING id
)
SELECT count(*) AS turns FROM expired;

-- name: some_turns
-- Lists the first turns of a relationship, those whose text is gone included, to delete them.
SELECT id FROM turns WHERE relationship_id = $1 AND id <= $2 ORDER BY id LIMIT $3;

-- name: replies_after
-- Lists what the companion of a relationship said after a turn, and is still there.
SELECT id FROM turns
WHERE relationship_id = $1 AND id > $2 AND speaker = 'companion' AND removed_at IS NULL
ORDER BY id;

-- name: delete_turns
-- Deletes turns of a relationship; what answers them elsewhere then answers nothing.
WITH untied AS (
    UPDATE turns SET reply_to = NULL
    WHERE relationship_id = $1 AND reply_to = ANY ($2::bigint[]) AND id <> ALL ($2::bigint[])
)
DELETE FROM turns WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: delete_closed_sessions
-- Deletes the sessions of a relationship that are over and of which no turn is left.
DELETE FROM sessions AS session
WHERE session.relationship_id = $1 AND session.closed_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM turns AS turn WHERE turn.session_id = session.id)
    AND NOT EXISTS (
        SELECT FROM records AS record
        WHERE record.relationship_id = $1 AND record.session_id = session.id
    );

-- name: begin_anew
-- Gives a relationship of which everything was forgotten the state of a new one.
UPDATE relationships
SET settings = '{}',
    operator_settings = operator_settings - '{significance,scratchpad,profile,prompts}'::text[],
    shares_counts = false, dismissed = '{}', remade = '[]', salt = gen_random_uuid(),
    habits_at = NULL, stated_turn_id = 0, profiled_turn_id = 0, noted_turn_id = 0,
    summarised_turn_id = 0, told_turn_id = 0, layers_version = layers_version + 1
WHERE id = $1;

-- name: forget_name
-- Takes a user's name and zone back to what is known of one who was never here.
-- Only where nothing is left, of this companion or another, and no session goes on.
UPDATE users AS account SET name = external_id, time_zone = 'UTC'
FROM relationships AS bond
WHERE bond.id = $1 AND account.id = bond.user_id
    AND NOT EXISTS (SELECT FROM turns AS turn WHERE turn.relationship_id = $1)
    AND NOT EXISTS (SELECT FROM records AS record WHERE record.relationship_id = $1)
    AND NOT EXISTS (
        SELECT FROM sessions AS session
        WHERE session.relationship_id = $1 AND session.closed_at IS NULL
    )
    AND NOT EXISTS (
        SELECT FROM relationships AS other
        WHERE other.user_id = account.id AND other.id <> bond.id
    );

-- name: say_instead
-- Puts other words in the place of a memory's and its turns'; what is no longer kept stays so.
WITH said AS (
    UPDATE turns
    SET content = CASE WHEN removed_at IS NULL THEN $4 ELSE '' END, embedding = $5,
        corrected = true
    WHERE relationship_id = $1 AND id = ANY ($3::bigint[])
)
UPDATE memories SET content = $4, version = $6
WHERE relationship_id = $1 AND id = $2;

-- name: unstate_facts
-- Deletes what a memory of a relationship states.
DELETE FROM memory_facts WHERE relationship_id = $1 AND memory_id = $2;

-- name: restate_fact
-- Notes what a memory states, as its speaker, when it was said.
INSERT INTO memory_facts (relationship_id, speaker, slot, value, memory_id, said_at)
SELECT $1, speaker, $3, $4, id, created_at FROM memories WHERE relationship_id = $1 AND id = $2
ON CONFLICT DO NOTHING;

-- name: exchanges_of_turns
-- Lists the turns of the sessions that some turns belong to, and which still say something.
SELECT turn.session_id, turn.id,
    turn.removed_at IS NULL
        OR EXISTS (SELECT FROM memories AS memory WHERE memory.source_turn_id = turn.id) AS says
FROM turns AS turn
WHERE turn.relationship_id = $1
    AND turn.session_id IN (SELECT session_id FROM turns WHERE id = ANY ($2::bigint[]))
ORDER BY turn.session_id, turn.id;

-- name: exchange_turns
-- Reads some turns of a relationship with vector and memory, to read exchanges anew.
SELECT turn.id, turn.speaker, turn.embedding, memory.id AS memory_id,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE memory.content END AS content
FROM turns AS turn LEFT JOIN memories AS memory ON memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id = ANY ($2::bigint[])
ORDER BY turn.id;

-- name: rewrite_memories
-- Gives memories of a relationship other vectors and words, and none of the words of before.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::halfvec[], $4::real[], $5::bytea[])
        AS each (id, embedding, length, words)
), before AS MATERIALIZED (
    SELECT coalesce(sum(memory.term_count), 0) AS length
    FROM memories AS memory WHERE memory.relationship_id = $1 AND memory.id = ANY ($2::bigint[])
), changed AS (
    UPDATE memories AS memory
    SET embedding = given.embedding, term_count = given.length, words = given.words,
        version = $6
    FROM given WHERE memory.id = given.id AND memory.relationship_id = $1
)
UPDATE relationships
SET term_count = term_count + coalesce((SELECT sum(length) FROM given), 0)
    - (SELECT length FROM before)
WHERE id = $1;

-- name: forget_words
-- Deletes the words of memories of a relationship, to be written anew.
DELETE FROM memory_terms WHERE relationship_id = $1 AND memory_id = ANY ($2::bigint[]);

-- name: write_words
-- Writes the words of memories of a relationship.
INSERT INTO memory_terms (relationship_id, memory_id, term, frequency)
SELECT $1, memory_id, term, frequency
FROM unnest($2::bigint[], $3::text[], $4::real[]) AS word (memory_id, term, frequency);

-- name: states_of_records
-- Reads who wrote records of a relationship, and what they say.
SELECT id, layer, kind, made_by, title, content, refs, details::text AS details,
    ARRAY(SELECT made_of.turn_id FROM record_sources AS made_of
          WHERE made_of.record_id = record.id AND made_of.turn_id IS NOT NULL) AS turns
FROM records AS record WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: revisions_of_records
-- Reads the earlier states of records of a relationship, the newest of each last.
SELECT record_id AS id, revision, made_by, kind, title, content FROM record_revisions
WHERE relationship_id = $1 AND record_id = ANY ($2::bigint[]) ORDER BY record_id, revision;

-- name: sources_left
-- Lists which turns records of some layers were made of that still say something.
-- Where the text of a turn is no longer kept, its memory says what it said, or that which it joined.
SELECT record.id, record.layer, array_agg(turn.id ORDER BY turn.id) AS turns
FROM records AS record
JOIN record_sources AS source ON source.record_id = record.id
JOIN turns AS turn ON turn.id = source.turn_id
WHERE record.relationship_id = $1 AND record.id = ANY ($2::bigint[])
    AND turn.id <> ALL ($3::bigint[])
    AND (turn.removed_at IS NULL
        OR EXISTS (SELECT FROM memories AS memory WHERE memory.source_turn_id = turn.id)
        OR EXISTS (SELECT FROM memory_sources AS again WHERE again.turn_id = turn.id))
GROUP BY record.id;

-- name: made_of_everything
-- Lists the records of a relationship that are made of all there is, or counted from it.
SELECT id FROM records
WHERE relationship_id = $1 AND (layer = 'hot' OR (layer = 'profile' AND kind = 'inferred'));

-- name: topics_written_from
-- Lists the topics of a relationship that are written from some records.
SELECT DISTINCT record.id
FROM records AS record JOIN record_sources AS source ON source.record_id = record.id
WHERE record.relationship_id = $1 AND record.layer = 'topics'
    AND source.source_id = ANY ($2::bigint[]);

-- name: said_again
-- Lists the turns that said again what memories of a relationship say, but for those that go.
SELECT source.turn_id AS id
FROM memory_sources AS source JOIN turns AS turn ON turn.id = source.turn_id
WHERE source.relationship_id = $1 AND source.memory_id = ANY ($2::bigint[])
    AND source.turn_id <> ALL ($3::bigint[]) AND turn.removed_at IS NULL
ORDER BY source.turn_id;

-- name: unsettle
-- Lets memories of a relationship hold again that a corrected one contradicted, and itself.
WITH traces AS (
    DELETE FROM memory_changes AS change USING memories AS corrected
    WHERE corrected.id = $2 AND change.relationship_id = $1 AND change.change = 'superseded'
        AND (change.memory_id = $2 OR change.other_turn_id = corrected.source_turn_id)
)
UPDATE memories SET superseded_by = NULL, version = $3
WHERE relationship_id = $1 AND superseded_by IS NOT NULL AND (id = $2 OR superseded_by = $2);

-- name: settle_facts
-- Marks the memories of a relationship that hold again, though a later one states otherwise.
WITH contradicted AS MATERIALIZED (
    SELECT DISTINCT ON (own.memory_id) own.memory_id AS id, own.slot,
        newer.memory_id AS newer, by.source_turn_id AS turn_id
    FROM memory_facts AS own
    JOIN memories AS held ON held.id = own.memory_id AND held.superseded_by IS NULL
    JOIN memory_facts AS newer ON newer.relationship_id = own.relationship_id
        AND newer.speaker = own.speaker AND newer.slot = own.slot AND newer.value <> own.value
        AND (newer.said_at, newer.memory_id) > (own.said_at, own.memory_id)
    JOIN memories AS by ON by.id = newer.memory_id
    WHERE own.relationship_id = $1
    ORDER BY own.memory_id, newer.said_at, newer.memory_id
), traced AS (
    INSERT INTO memory_changes
        (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
    SELECT $1, id, 'superseded', turn_id, 'another ' || slot, $3 FROM contradicted
    WHERE turn_id IS NOT NULL
)
UPDATE memories AS memory SET superseded_by = contradicted.newer, version = $2
FROM contradicted WHERE memory.id = contradicted.id AND memory.relationship_id = $1;

-- name: say_in_record
-- Puts other words into a record of a relationship: what it said was forgotten in part.
UPDATE records SET content = $3, updated_at = $4, revision = revision + 1
WHERE relationship_id = $1 AND id = $2;

-- name: say_in_revision
-- Puts other words into an earlier state of a record: what it said was forgotten in part.
UPDATE record_revisions SET content = $4
WHERE relationship_id = $1 AND record_id = $2 AND revision = $3;

-- name: back_to_revision
-- Lets an earlier state of a record hold again, as if no later one had been.
UPDATE records AS record
SET kind = kept.kind, title = kept.title, content = kept.content, made_by = kept.made_by,
    embedding = $4, refs = '{}', details = '{}', updated_at = $5, revision = record.revision + 1
FROM record_revisions AS kept
WHERE record.relationship_id = $1 AND record.id = $2
    AND kept.record_id = record.id AND kept.revision = $3;

-- name: delete_some_revisions
-- Deletes earlier states of records of a relationship.
DELETE FROM record_revisions AS kept
USING unnest($2::bigint[], $3::integer[]) AS gone (record_id, revision)
WHERE kept.relationship_id = $1 AND kept.record_id = gone.record_id
    AND kept.revision = gone.revision;

-- name: untie_records
-- Deletes what ties records of a relationship to what they were made of.
DELETE FROM record_sources WHERE relationship_id = $1 AND record_id = ANY ($2::bigint[]);

-- name: note_again
-- Adds turns to those whose notes are to be made again.
UPDATE relationships SET remade = remade || $2::jsonb WHERE id = $1;

-- name: noted_again
-- Takes turns from those whose notes are to be made again.
UPDATE relationships SET remade = coalesce((
    SELECT jsonb_agg(each) FROM jsonb_array_elements(remade) AS each WHERE each <> $2::jsonb
), '[]')
WHERE id = $1;

-- name: raise_erasures
-- Marks all that is held as out of date, and where its user erased something what began before.
UPDATE relationships
SET erasures = erasures + $2, layers_version = layers_version + 1
WHERE id = $1 RETURNING erasures, layers_version;

-- name: erasures_of
-- Reads how often something was erased of a relationship.
SELECT erasures FROM relationships WHERE id = $1;
