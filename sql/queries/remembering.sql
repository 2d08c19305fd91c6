-- name: lock_relationship
-- Locks a relationship, so that one transaction at a time changes what it remembers.
-- It reads the embedding model, which cannot be replaced until the transaction ends.
SELECT erasures, memory_version, (SELECT fingerprint FROM embedding_model) AS fingerprint
FROM relationships WHERE id = $1 FOR NO KEY UPDATE;

-- name: turns_to_ingest
-- Lists turns with those around them in their sessions, and what ingesting them needs.
-- Four on either side, and five before, as the question that a turn answers has a window too.
-- An event has no session, and stands alone.
-- Erased turns are skipped; an expired text is replaced by that of its memory.
SELECT turn.id, turn.session_id, turn.speaker, turn.event_type, turn.place, turn.created_at,
    turn.embedding AS vector,
    CASE WHEN turn.removed_at IS NULL THEN turn.content ELSE memory.content END AS content,
    turn.removed_at IS NOT NULL AS removed,
    coalesce(turn.message_id, asked.message_id) AS message_id,
    memory.id AS memory_id, memory.term_count, merged.memory_id AS merged_into,
    account.name AS user_name, account.time_zone,
    concat_ws('-', coalesce(account.language, 'en'), account.region) AS language,
    companion.name AS companion_name, companion.settings AS companion_settings,
    relationship.settings, relationship.operator_settings
FROM (
    SELECT DISTINCT near.id
    FROM turns AS given
    CROSS JOIN LATERAL (
        (SELECT id FROM turns
         WHERE relationship_id = $1 AND session_id = given.session_id AND id <= given.id
            AND (removed_at IS NULL OR EXISTS (
                SELECT FROM memories WHERE relationship_id = $1 AND source_turn_id = turns.id
            ))
         ORDER BY id DESC LIMIT 6)
        UNION ALL
        (SELECT id FROM turns
         WHERE relationship_id = $1 AND session_id = given.session_id AND id > given.id
            AND (removed_at IS NULL OR EXISTS (
                SELECT FROM memories WHERE relationship_id = $1 AND source_turn_id = turns.id
            ))
         ORDER BY id LIMIT 4)
        UNION ALL
        SELECT given.id WHERE given.session_id IS NULL
    ) AS near
    WHERE given.relationship_id = $1 AND given.id = ANY ($2::bigint[]) AND given.removed_at IS NULL
) AS near
JOIN turns AS turn ON turn.relationship_id = $1 AND turn.id = near.id
JOIN relationships AS relationship ON relationship.id = $1
JOIN companions AS companion ON companion.id = relationship.companion_id
JOIN users AS account ON account.id = relationship.user_id
LEFT JOIN turns AS asked ON asked.relationship_id = $1 AND asked.id = turn.reply_to
LEFT JOIN memories AS memory
    ON memory.relationship_id = $1 AND memory.source_turn_id = turn.id
LEFT JOIN memory_sources AS merged
    ON merged.relationship_id = $1 AND merged.turn_id = turn.id
ORDER BY turn.id;

-- name: similar_memories
-- Lists the memories nearest to turns by the vectors of their texts without context.
SELECT said.id AS turn_id, near.id, near.speaker, near.content, near.significance,
    near.created_at, near.nearness, -(turn.embedding <#> said.embedding) AS cosine
FROM unnest($2::bigint[], $3::halfvec[]) AS said (id, embedding)
CROSS JOIN LATERAL (
    SELECT id, speaker, content, significance, created_at, source_turn_id,
        -(embedding <#> said.embedding) AS nearness
    FROM memories
    WHERE relationship_id = $1 AND superseded_by IS NULL
    ORDER BY embedding <#> said.embedding
    LIMIT 10
) AS near
JOIN turns AS turn ON turn.relationship_id = $1 AND turn.id = near.source_turn_id
WHERE turn.embedding IS NOT NULL AND turn.id <> said.id
ORDER BY said.id, cosine DESC;

-- name: facts_of_slots
-- Lists what memories state about some slots.
SELECT memory_id, speaker, slot, value, said_at FROM memory_facts
WHERE relationship_id = $1 AND slot = ANY ($2::text[])
ORDER BY memory_id;

-- name: store_memories
-- Stores memories with terms and facts, once per source turn, and new vectors, terms, uses of others.
-- It sets the memory version, and changes the counts of memories and terms alike. New memories must
-- be of the store's model. A term of a new memory has the negative id of its turn. It returns what
-- `index_changes` and `index_state` would.
WITH stored AS (
    INSERT INTO memories (
        relationship_id, created_at, source_turn_id, significance, term_count, memory_type,
        speaker, embedding, content, reasons, happened_from, happened_to, place, words, session_id,
        version
    )
    SELECT $1, made.created_at, made.turn_id, made.significance, made.length, made.memory_type,
        made.speaker, made.embedding, made.content, made.reasons, made.happened_from,
        made.happened_to, coalesce(said.place, ''), made.words, said.session_id, $2
    FROM embedding_model
    CROSS JOIN unnest(
        $4::timestamptz[], $5::bigint[], $6::real[], $7::real[], $8::text[], $9::text[],
        $10::halfvec[], $11::text[], $12::jsonb[], $13::timestamptz[], $14::timestamptz[],
        $15::bytea[]
    ) WITH ORDINALITY AS made (
        created_at, turn_id, significance, length, memory_type, speaker, embedding, content,
        reasons, happened_from, happened_to, words, number
    )
    LEFT JOIN turns AS said ON said.relationship_id = $1 AND said.id = made.turn_id
    WHERE fingerprint = $3 AND dimension = vector_dims(made.embedding)
    ORDER BY made.number
    ON CONFLICT (relationship_id, source_turn_id) DO NOTHING
    RETURNING id, source_turn_id, speaker, memory_type, content, significance, created_at,
        happened_from, happened_to, place, last_used_at, superseded_by, term_count, session_id,
        embedding, words
), changed AS (
    UPDATE memories
    SET embedding = coalesce(given.embedding, memories.embedding),
        other_embedding = CASE WHEN given.embedding IS NULL THEN memories.other_embedding END,
        term_count = coalesce(given.length, term_count), words = coalesce(given.words, memories.words),
        last_used_at = CASE WHEN given.id = ANY ($28::bigint[]) THEN greatest(last_used_at, $29)
            ELSE last_used_at END,
        version = $2
    FROM unnest($16::bigint[], $17::halfvec[], $18::real[], $19::bytea[])
        AS given (id, embedding, length, words)
    WHERE memories.relationship_id = $1 AND memories.id = given.id
    RETURNING memories.id, source_turn_id, speaker, memory_type, content, significance, created_at,
        happened_from, happened_to, place, last_used_at, superseded_by, term_count, session_id,
        memories.embedding, memories.words
), terms AS (
    INSERT INTO memory_terms (relationship_id, term, memory_id, frequency)
    SELECT $1, word.term, coalesce(stored.id, word.memory_id), word.frequency
    FROM unnest($20::bigint[], $21::text[], $22::real[]) AS word (memory_id, term, frequency)
    LEFT JOIN stored ON stored.source_turn_id = -word.memory_id
    WHERE word.memory_id > 0 OR stored.id IS NOT NULL
    -- Citus would COPY them without this, which row-level security refuses.
    ON CONFLICT (relationship_id, term, memory_id) DO UPDATE SET frequency = excluded.frequency
), facts AS (
    INSERT INTO memory_facts (relationship_id, speaker, slot, value, memory_id, said_at)
    SELECT $1, stored.speaker, stated.slot, stated.value, stored.id, stored.created_at
    FROM stored
    JOIN unnest($23::bigint[], $24::text[], $25::text[]) AS stated (turn_id, slot, value)
        ON stated.turn_id = stored.source_turn_id
    ON CONFLICT DO NOTHING -- likewise
), counted AS (
    UPDATE relationships
    SET memory_version = $2, memory_count = memory_count + $26, term_count = term_count + $27
    WHERE id = $1
    RETURNING memory_count, term_count
)
SELECT written.id, source_turn_id, speaker, memory_type, content, significance, created_at,
    happened_from, happened_to, place, last_used_at, superseded_by IS NOT NULL AS superseded,
    superseded_by, written.term_count,
    coalesce(uuid_hash_extended(session_id, 0), written.id) AS session,
    halfvec_send(embedding) AS vector, words, memory_count, counted.term_count AS total_terms
FROM counted LEFT JOIN (SELECT * FROM stored UNION ALL SELECT * FROM changed) AS written ON true;

-- name: merge_into_memories
-- Merges repeating turns into memories, and changes the significance of memories.
WITH sources AS (
    INSERT INTO memory_sources (relationship_id, turn_id, memory_id, said_at)
    SELECT $1, repeated.turn_id, repeated.memory_id, repeated.said_at
    FROM unnest($2::bigint[], $3::bigint[], $4::timestamptz[])
        AS repeated (turn_id, memory_id, said_at)
    ON CONFLICT DO NOTHING -- else Citus would COPY them, which row-level security refuses
), traces AS (
    INSERT INTO memory_changes
        (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
    SELECT $1, repeated.memory_id, 'merged', repeated.turn_id, repeated.reason, $6
    FROM unnest($2::bigint[], $3::bigint[], $5::text[]) AS repeated (turn_id, memory_id, reason)
    ON CONFLICT DO NOTHING -- likewise
)
UPDATE memories
SET significance = given.significance, reasons = given.reasons,
    created_at = greatest(created_at, given.said_at), version = $11
FROM unnest($7::bigint[], $8::real[], $9::jsonb[], $10::timestamptz[])
    AS given (id, significance, reasons, said_at)
WHERE memories.relationship_id = $1 AND memories.id = given.id;

-- name: supersede_memories
-- Marks memories as superseded by others, unless they are already.
WITH marked AS (
    UPDATE memories SET superseded_by = given.newer, version = $6
    FROM unnest($2::bigint[], $3::bigint[], $4::text[]) AS given (older, newer, reason)
    WHERE memories.relationship_id = $1 AND memories.id = given.older AND superseded_by IS NULL
    RETURNING memories.id, superseded_by, given.reason
)
INSERT INTO memory_changes (relationship_id, memory_id, change, other_turn_id, reason, changed_at)
SELECT $1, marked.id, 'superseded', newer.source_turn_id, marked.reason, $5
FROM marked JOIN memories AS newer ON newer.relationship_id = $1 AND newer.id = marked.superseded_by
-- Else Citus would COPY it, which row-level security refuses.
ON CONFLICT DO NOTHING;

-- name: end_wait
-- Stores vectors of turns, if the store's model made them, and ends the wait of turns for steps.
-- It counts the vectors that it stored. A message without a reply has background work wait for a lull,
-- as a reply has, unless it is to look sooner.
WITH ended AS (
    DELETE FROM background_steps
    WHERE relationship_id = $1 AND turn_id = ANY ($5::bigint[]) AND step = ANY ($6::text[])
), gathering AS (
    UPDATE relationships SET due_at = $7::timestamptz
    WHERE id = $1 AND coalesce(due_at > $7, true) AND EXISTS (
        SELECT FROM turns AS said
        WHERE said.relationship_id = $1 AND said.id = ANY ($5::bigint[]) AND speaker = 'user'
            AND said.id > noted_turn_id AND NOT EXISTS (
                SELECT FROM turns AS reply
                WHERE reply.relationship_id = $1 AND reply.reply_to = said.id
            )
    )
), vectors AS (
    UPDATE turns SET embedding = made.embedding, other_embedding = NULL
    FROM embedding_model, unnest($2::bigint[], $3::halfvec[]) AS made (id, embedding)
    WHERE turns.relationship_id = $1 AND turns.id = made.id AND fingerprint = $4
        AND dimension = vector_dims(made.embedding)
    RETURNING turns.id
)
SELECT count(*) AS stored FROM vectors;

-- name: raise_memory_version
-- Raises a relationship's memory version, which makes its cached contexts stale.
UPDATE relationships SET memory_version = memory_version + 1 WHERE id = $1
RETURNING memory_version AS version;

-- name: enqueue_turns
-- Has a step process turns one by one from now on; anew, if they wait for it already.
INSERT INTO background_steps AS known
    (relationship_id, step, turn_id, lane, place, companion_id, due_at, since)
SELECT relationship.id, $2, turn.id, $2, $4, relationship.companion_id, $5, $5
FROM relationships AS relationship, unnest($3::bigint[]) AS turn (id)
WHERE relationship.id = $1
ON CONFLICT (relationship_id, step, turn_id) DO UPDATE
SET due_at = excluded.due_at, since = excluded.since, place = excluded.place,
    marks = known.marks + 1, attempts = 0, code = NULL, held_at = NULL;
