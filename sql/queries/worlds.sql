-- name: find_world
-- Reads a world, and the timelines that come before its own.
SELECT world.name, world.timeline_id, timeline.ancestors, timeline.begun_seq, world.next_seq,
    world.version, world.erasures,
    world.clock_time, world.clock_set_at, world.clock_factor, world.rules::text AS rules
FROM worlds AS world JOIN timelines AS timeline ON timeline.id = world.timeline_id
WHERE world.name = $1;

-- name: list_worlds
-- Lists worlds after a name, all or some of them.
SELECT name, clock_time, clock_set_at, clock_factor FROM worlds
WHERE name > $1 AND ($2::text[] IS NULL OR name = ANY ($2)) ORDER BY name LIMIT $3;

-- name: lock_world
-- Locks a world, so that its events have one order.
SELECT name FROM worlds WHERE name = $1 FOR NO KEY UPDATE;

-- name: insert_timeline
-- Begins a timeline of a world.
INSERT INTO timelines (id, world, ancestors, begun_seq) VALUES ($1, $2, $3, $4);

-- name: insert_world
-- Stores a new world; nothing if it exists.
INSERT INTO worlds (name, timeline_id, next_seq, clock_time, clock_set_at, clock_factor, rules)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING name;

-- name: change_world
-- Sets what of a world is not to stay as it is.
UPDATE worlds
SET clock_time = $2, clock_set_at = $3, clock_factor = $4, rules = $5, timeline_id = $6,
    version = version + 1
WHERE name = $1;

-- name: take_event_numbers
-- Numbers the next events of a world, and moves its clock on.
UPDATE worlds
SET next_seq = next_seq + $2,
    clock_time = CASE WHEN $3::timestamptz IS NULL THEN clock_time ELSE $3 END,
    clock_set_at = CASE WHEN $3::timestamptz IS NULL THEN clock_set_at ELSE $4 END
WHERE name = $1 RETURNING next_seq - $2 AS first;

-- name: accounts
-- Finds accounts by the ids that no client can name.
SELECT external_id, id FROM users WHERE external_id = ANY ($1::text[]);

-- name: insert_accounts
-- Creates accounts, and finds those that were created meanwhile.
INSERT INTO users (external_id, name)
SELECT external_id, name FROM unnest($1::text[], $2::text[]) AS given (external_id, name)
ON CONFLICT (external_id) DO UPDATE SET name = excluded.name
RETURNING external_id, id;

-- name: accounts_of_player
-- Finds the accounts of a player in all timelines.
SELECT account.id, timeline.id AS timeline_id, timeline.world
FROM timelines AS timeline
CROSS JOIN LATERAL (
    SELECT known.id FROM users AS known
    WHERE known.external_id = E'\n' || timeline.id || '/' || $1::text OFFSET 0
) AS account
ORDER BY timeline.id;

-- name: lock_family
-- Locks the worlds whose past or present includes one of some timelines, in order.
SELECT name FROM worlds
WHERE timeline_id IN (
    SELECT id FROM timelines WHERE id = ANY ($1::bigint[]) OR ancestors && $1::bigint[]
)
ORDER BY name FOR NO KEY UPDATE;

-- name: count_erasure
-- Records that something was forgotten in worlds, so that nothing that knew it happens any more.
UPDATE worlds SET erasures = erasures + 1 WHERE name = ANY ($1::text[]);

-- name: rename_accounts
-- Gives accounts other ids.
UPDATE users AS account SET external_id = given.external_id, name = ''
FROM unnest($1::bigint[], $2::text[]) AS given (id, external_id) WHERE account.id = given.id;

-- name: witnessed_by_player
-- Lists what a player witnessed after an event, by the relationship of the player's own log.
SELECT event.seq, event.id, event.type, event.actor, event.addressed, event.content AS text,
    witness.how, event.scene, event.place, event.happened_at
FROM witnesses AS witness
JOIN world_events AS event
    ON event.timeline_id = witness.timeline_id AND event.seq = witness.seq
WHERE witness.relationship_id = $1 AND witness.seq > $2
ORDER BY witness.seq LIMIT $3;

-- name: lock_witnessed_by
-- Lists some of what the log and the minds of an account witnessed, and locks it in order.
SELECT witness.relationship_id, witness.seq
FROM witnesses AS witness
JOIN world_events AS event ON event.timeline_id = $2 AND event.seq = witness.seq
WHERE witness.relationship_id >= $1::bigint * 4194304
    AND witness.relationship_id < ($1::bigint + 1) * 4194304
ORDER BY witness.seq LIMIT $3 FOR NO KEY UPDATE OF event;

-- name: remove_witnesses
-- Removes relationships from the witnesses of events of a timeline.
WITH gone AS (
    DELETE FROM witnesses
    WHERE timeline_id = $1 AND seq = ANY ($2::bigint[]) AND relationship_id = ANY ($3::bigint[])
)
UPDATE world_events
SET witnesses = ARRAY(
    SELECT one FROM unnest(witnesses) AS one WHERE one <> ALL ($3::bigint[])
)
WHERE timeline_id = $1 AND seq = ANY ($2::bigint[]);

-- name: remove_from_scenes
-- Removes a player from the scenes of some timelines.
UPDATE scenes SET players = array_remove(players, $2), positions = positions - $2::text
WHERE timeline_id = ANY ($1::bigint[]) AND $2 = ANY (players);

-- name: put_scene
-- Sets who is in a scene, and where it is.
INSERT INTO scenes (timeline_id, name, place, players, minds, positions, turn_order)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (timeline_id, name) DO UPDATE
SET place = excluded.place, players = excluded.players, minds = excluded.minds,
    positions = excluded.positions, turn_order = excluded.turn_order;

-- name: scenes_of_timeline
-- Lists the scenes of a timeline.
SELECT name, place, players, minds, positions::text AS positions, turn_order::text AS turn_order
FROM scenes
WHERE timeline_id = $1 ORDER BY name;

-- name: copy_scenes
-- Gives a timeline the scenes of another.
INSERT INTO scenes (timeline_id, name, place, players, minds, positions, turn_order)
SELECT $1, name, place, players, minds, positions, turn_order FROM scenes AS other WHERE timeline_id = $2;

-- name: known_events
-- Lists which of some events happened in some timelines.
SELECT id FROM world_events WHERE timeline_id = ANY ($1::bigint[]) AND id = ANY ($2::text[]);

-- name: insert_world_events
-- Stores what happened in a world, each event once.
INSERT INTO world_events (
    timeline_id, seq, id, type, memory_type, actor, actor_id, addressed, volume, chain, content,
    fields, scene, place, happened_at, witnesses
)
SELECT $1, given.seq, given.id, given.type, given.memory_type, given.actor, given.actor_id,
    given.addressed::text[], given.volume, given.chain::text[], given.content, given.fields,
    given.scene, given.place, given.happened_at, given.witnesses::bigint[]
FROM unnest(
    $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::jsonb[], $13::text[], $14::text[],
    $15::timestamptz[], $16::text[]
) AS given (
    seq, id, type, memory_type, actor, actor_id, addressed, volume, chain, content, fields, scene,
    place, happened_at, witnesses
);

-- name: insert_event_sources
-- Stores which events of a timeline pass on others, or were made of them.
INSERT INTO event_sources (source_timeline_id, source_seq, timeline_id, seq)
SELECT given.source_timeline_id, given.source_seq, $1, given.seq
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS given (source_timeline_id, source_seq, seq)
ON CONFLICT DO NOTHING;

-- name: remembered_events
-- Reads events that are not forgotten by their ids.
SELECT timeline_id, seq, id, memory_type, actor, chain FROM world_events
WHERE timeline_id = ANY ($1::bigint[]) AND id = ANY ($2::text[]) AND forgotten_at IS NULL;

-- name: insert_witnesses
-- Stores who witnessed events, and how.
INSERT INTO witnesses (relationship_id, timeline_id, seq, how)
SELECT witness.relationship_id, $1, given.seq, witness.how
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS given (seq, relationships, hows),
    unnest(given.relationships::bigint[], given.hows::text[]) AS witness (relationship_id, how);

-- name: world_events
-- Reads events of some timelines by their ids.
SELECT timeline_id, seq, id, type, memory_type, actor, actor_id, addressed, volume, chain, content,
    fields::text AS fields, scene, place, happened_at, witnesses
FROM world_events WHERE timeline_id = ANY ($1::bigint[]) AND id = ANY ($2::text[]) ORDER BY seq;

-- name: witnessed_after
-- Lists what a mind witnessed after an event.
SELECT witness.how, event.timeline_id, event.seq, event.id, event.type, event.memory_type,
    event.actor, event.actor_id, event.addressed, event.volume, event.chain, event.content,
    event.fields::text AS fields, event.scene, event.place, event.happened_at,
    CASE WHEN event.vector_of = $4::text THEN event.vector END AS vector
FROM (
    SELECT timeline_id, seq, how FROM witnesses
    WHERE relationship_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
) AS witness
JOIN world_events AS event
    ON event.timeline_id = witness.timeline_id AND event.seq = witness.seq
ORDER BY witness.seq;

-- name: witnessed_through_time
-- Lists what a mind witnessed after an event, in all timelines of its past.
SELECT witness.how, event.timeline_id, event.seq, event.id, event.type, event.memory_type,
    event.actor, event.actor_id, event.addressed, event.volume, event.chain, event.content,
    event.fields::text AS fields, event.scene, event.place, event.happened_at,
    CASE WHEN event.vector_of = $4::text THEN event.vector END AS vector
FROM (
    SELECT timeline_id, seq, how FROM witnesses
    WHERE relationship_id = ANY ($1::bigint[]) AND seq > $2 ORDER BY seq LIMIT $3
) AS witness
JOIN world_events AS event
    ON event.timeline_id = witness.timeline_id AND event.seq = witness.seq
ORDER BY witness.seq;

-- name: witnessed_last
-- Lists the last that a relationship witnessed, the newest first.
SELECT witness.how, event.timeline_id, event.seq, event.id, event.type, event.memory_type,
    event.actor, event.actor_id, event.addressed, event.volume, event.chain, event.content,
    event.fields::text AS fields, event.scene, event.place, event.happened_at,
    CASE WHEN event.vector_of = $3::text THEN event.vector END AS vector
FROM witnesses AS witness
JOIN world_events AS event
    ON event.timeline_id = witness.timeline_id AND event.seq = witness.seq
WHERE witness.relationship_id = $1
ORDER BY witness.seq DESC LIMIT $2;

-- name: store_event_vectors
-- Stores the vectors of events, for all who witnessed them.
-- Those who ask at the same time lock them in the same order.
WITH made AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::halfvec[])
        AS given (timeline_id, seq, vector)
), locked AS MATERIALIZED (
    SELECT event.timeline_id, event.seq, made.vector
    FROM world_events AS event
    JOIN made ON made.timeline_id = event.timeline_id AND made.seq = event.seq
    WHERE event.forgotten_at IS NULL AND event.vector_of IS DISTINCT FROM $1::text
    ORDER BY event.timeline_id, event.seq FOR NO KEY UPDATE OF event
)
UPDATE world_events AS event SET vector = locked.vector, vector_of = $1::text
FROM locked WHERE event.timeline_id = locked.timeline_id AND event.seq = locked.seq;

-- name: find_mind
-- Reads the last event that a mind has perceived; nothing if it has perceived none.
SELECT perceived_seq FROM relationships WHERE id = $1;

-- name: existing_minds
-- Lists which relationships exist.
SELECT id FROM relationships WHERE id = ANY ($1::bigint[]);

-- name: insert_mind
-- Begins what a mind remembers.
INSERT INTO relationships (id, user_id, companion_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: copy_mind
-- Begins what a mind remembers with what another one does.
INSERT INTO relationships (
    id, user_id, companion_id, memory_version, layers_version, erasures, removals, settings_version,
    memory_count, term_count, settings, operator_settings, consented_at, stated_turn_id,
    noted_turn_id, summarised_turn_id, narrated_turn_id, habits_at, perceived_seq, remade, dismissed,
    salt
)
SELECT $1, $2, companion_id, memory_version, layers_version, erasures, removals, settings_version,
    memory_count, term_count, settings, operator_settings, consented_at, stated_turn_id,
    noted_turn_id, summarised_turn_id, narrated_turn_id, habits_at, perceived_seq, remade, dismissed,
    salt
FROM relationships AS source WHERE id = $3
ON CONFLICT DO NOTHING RETURNING id;

-- name: copy_waiting_turns
-- Has the turns of a copy become memories that wait for it in what was copied.
INSERT INTO background_steps
    (relationship_id, step, turn_id, lane, place, companion_id, due_at, since)
SELECT $2, step, turn_id, lane, place, companion_id, due_at, since FROM background_steps AS waiting
WHERE relationship_id = $1 AND step = 'ingest' AND turn_id > 0;

-- name: copy_relationship
-- Copies all that a relationship remembers to another.
SELECT copy_relationship($1, $2);

-- name: insert_perceptions
-- Stores what a mind perceived, in order; what is stored already stays as it is.
INSERT INTO turns
    (relationship_id, user_id, speaker, event_id, event_type, status, content, created_at, embedding,
    place)
SELECT $1, $2, given.speaker, given.event_id, given.event_type, 'completed', given.content,
    given.created_at, given.embedding, given.place
FROM unnest(
    $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::halfvec[], $9::text[]
) WITH ORDINALITY AS given
    (speaker, event_id, event_type, content, created_at, embedding, place, number)
ORDER BY given.number
ON CONFLICT DO NOTHING
RETURNING id;

-- name: set_perceived
-- Records the last event that a mind has perceived.
UPDATE relationships SET perceived_seq = greatest(perceived_seq, $2) WHERE id = $1;

-- name: perceptions
-- Lists the last things that a mind perceived or said, oldest first.
SELECT id, own, spoken, place, content
FROM (
    SELECT id, event_type = 'conversation' AND speaker = 'companion' AS own,
        event_type = 'conversation' AS spoken, place, content
    FROM turns
    WHERE relationship_id = $1 AND event_id IS NOT NULL AND removed_at IS NULL
    ORDER BY id DESC LIMIT $2
) AS latest
ORDER BY id;

-- name: unfinished_perceptions
-- Lists what a mind perceived that waits to become a memory.
SELECT turn_id FROM background_steps
WHERE relationship_id = $1 AND step = 'ingest' AND turn_id > 0 ORDER BY turn_id;

-- name: events_of_memories
-- Lists the events that memories of a mind were made of.
SELECT turn.event_id FROM memories AS memory
JOIN turns AS turn
    ON turn.relationship_id = memory.relationship_id AND turn.id = memory.source_turn_id
WHERE memory.relationship_id = $1 AND memory.id = ANY ($2::bigint[]) AND turn.event_id IS NOT NULL
ORDER BY turn.id;

-- name: remaining_events
-- Lists which of some events are not forgotten, and lets nobody do so until the transaction ends.
SELECT event.timeline_id, event.seq
FROM world_events AS event
JOIN unnest($1::bigint[], $2::bigint[]) AS given (timeline_id, seq)
    ON event.timeline_id = given.timeline_id AND event.seq = given.seq
WHERE event.forgotten_at IS NULL
ORDER BY event.timeline_id, event.seq FOR KEY SHARE OF event;

-- name: events_named
-- Finds events of some timelines by their ids.
SELECT timeline_id, seq FROM world_events
WHERE timeline_id = ANY ($1::bigint[]) AND id = ANY ($2::text[]);

-- name: fire_trigger
-- Lets a trigger fire, unless it did too lately ($4: seconds) or too often that day ($5).
INSERT INTO fired_triggers AS fired (world, name, fired_at, today)
SELECT $1, $2, $3, 1 WHERE coalesce($5::integer, 1) > 0
ON CONFLICT (world, name) DO UPDATE
SET fired_at = $3,
    today = CASE WHEN (fired.fired_at AT TIME ZONE 'UTC')::date = ($3::timestamptz AT TIME ZONE 'UTC')::date
        THEN fired.today + 1 ELSE 1 END
WHERE fired.fired_at <= $3::timestamptz - make_interval(secs => $4::double precision)
    AND ($5::integer IS NULL OR fired.today < $5
        OR (fired.fired_at AT TIME ZONE 'UTC')::date < ($3::timestamptz AT TIME ZONE 'UTC')::date)
RETURNING today;

-- name: silent_companions
-- Lists which characters may not speak first to some players.
SELECT DISTINCT companion.slug
FROM users AS player
JOIN relationships AS relationship ON relationship.user_id = player.id
JOIN companions AS companion ON companion.id = relationship.companion_id
WHERE player.external_id = ANY ($1::text[]) AND companion.slug = ANY ($2::text[])
    AND 'false' IN (
        relationship.settings ->> 'speaks_first', relationship.operator_settings ->> 'speaks_first'
    );

-- name: pending_actions
-- Lists the latest actions of some timelines that have no result.
SELECT asked.id FROM world_events AS asked
WHERE asked.timeline_id = ANY ($1::bigint[]) AND asked.type = 'action.requested'
    AND asked.forgotten_at IS NULL AND NOT EXISTS (
        SELECT FROM world_events AS told
        WHERE told.timeline_id = ANY ($1::bigint[]) AND told.id = asked.id || '>result'
    )
ORDER BY asked.happened_at DESC, asked.seq DESC LIMIT $2;

-- name: events_between
-- Finds events of a timeline in a span of the world's time, or of a player, the oldest first.
-- What a player said or did is of the player, and what the player was told. A name that is a
-- character's, too, is the player's only as that of somebody who did something.
SELECT seq FROM world_events
WHERE timeline_id = $1 AND seq > $2 AND seq <= $3 AND forgotten_at IS NULL
    AND happened_at >= coalesce($4::timestamptz, '-infinity')
    AND happened_at < coalesce($5::timestamptz, 'infinity')
    AND ($6::text IS NULL OR (actor = $6 AND actor_id IS NULL) OR (
        $6 = ANY (addressed) AND NOT EXISTS (SELECT FROM companions WHERE slug = $6)
    ))
ORDER BY seq LIMIT $7;

-- name: last_events
-- Reads the numbers of the last events of some timelines.
SELECT given.id AS timeline_id, (
    SELECT coalesce(max(event.seq), 0) FROM world_events AS event
    WHERE event.timeline_id = given.id
) AS seq
FROM unnest($1::bigint[]) AS given (id);

-- name: with_made_of
-- Lists some events, with all that pass them on or were made of them, however indirectly.
WITH RECURSIVE found AS (
    SELECT timeline_id, seq FROM unnest($1::bigint[], $2::bigint[]) AS given (timeline_id, seq)
    UNION
    SELECT made.timeline_id, made.seq
    FROM found
    JOIN event_sources AS made
        ON made.source_timeline_id = found.timeline_id AND made.source_seq = found.seq
)
SELECT timeline_id, seq FROM found ORDER BY timeline_id, seq;

-- name: lock_to_forget
-- Locks events in order, so that nobody perceives them or passes them on.
SELECT event.timeline_id, event.seq, event.id, event.witnesses,
    event.forgotten_at IS NOT NULL AS was_forgotten
FROM world_events AS event
JOIN unnest($1::bigint[], $2::bigint[]) AS given (timeline_id, seq)
    ON event.timeline_id = given.timeline_id AND event.seq = given.seq
ORDER BY event.timeline_id, event.seq FOR UPDATE OF event;

-- name: forget_world_events
-- Deletes what happened in events of a timeline, and how it was witnessed.
WITH gone AS (
    DELETE FROM witnesses
    WHERE timeline_id = $1 AND seq = ANY ($2::bigint[]) AND relationship_id = ANY ($3::bigint[])
), waiting AS (
    INSERT INTO events_to_forget (timeline_id, seq) SELECT $1, unnest($2::bigint[])
    ON CONFLICT DO NOTHING
)
UPDATE world_events
SET content = '', fields = '{}', actor = '', actor_id = NULL, addressed = '{}', chain = '{}',
    vector = NULL, vector_of = NULL, forgotten_at = coalesce(forgotten_at, $4)
WHERE timeline_id = $1 AND seq = ANY ($2::bigint[]);

-- name: end_forgetting
-- Records that no mind remembers forgotten events of a timeline.
WITH waiting AS (
    DELETE FROM events_to_forget WHERE timeline_id = $1 AND seq = ANY ($2::bigint[])
)
UPDATE world_events SET witnesses = '{}' WHERE timeline_id = $1 AND seq = ANY ($2::bigint[]);

-- name: events_to_forget
-- Lists forgotten events that minds may still remember.
SELECT timeline_id, seq FROM events_to_forget ORDER BY timeline_id, seq LIMIT $1;

-- name: timelines_of_family
-- Lists the timelines whose past includes one of some.
SELECT id, ancestors FROM timelines
WHERE id = ANY ($1::bigint[]) OR ancestors && $1::bigint[];

-- name: timelines_of_world
-- Lists the timelines that a world has begun.
SELECT id FROM timelines WHERE world = $1;

-- name: turns_of_events
-- Finds what a mind has perceived of some events.
SELECT id FROM turns
WHERE relationship_id = $1 AND event_id = ANY ($2::text[])
    AND (removed_at IS NULL OR EXISTS (
        SELECT FROM memories AS memory
        WHERE memory.relationship_id = $1 AND memory.source_turn_id = turns.id
    ))
ORDER BY id;

-- name: names_of_accounts
-- Reads the ids of accounts, which no client can name.
SELECT id, external_id FROM users WHERE id = ANY ($1::bigint[]);

-- name: slugs_of_companions
-- Lists the slugs of companions.
SELECT id, slug FROM companions WHERE id = ANY ($1::bigint[]) ORDER BY slug;

-- name: most_significant_memories
-- Lists the most significant of a mind's last memories that it may recall, in order of time.
-- That its host reported something is no reason to prefer it.
SELECT id, content, speaker, memory_type, significance, created_at, place
FROM (
    SELECT id, content, speaker, memory_type, significance, created_at, place
    FROM (
        SELECT * FROM memories WHERE relationship_id = $1 ORDER BY id DESC LIMIT $5
    ) AS latest
    WHERE created_at >= $3 OR significance >= $4
    ORDER BY (
        SELECT max((reason ->> 'score')::real) FROM jsonb_array_elements(reasons) AS reason
        WHERE reason ->> 'name' <> 'requested'
    ) DESC NULLS LAST, id DESC LIMIT $2
) AS found
ORDER BY created_at, id;

-- name: delete_world
-- Deletes a world with its saves; what happened in it stays until its timelines are deleted.
DELETE FROM worlds WHERE name = $1 RETURNING name;

-- name: delete_save
-- Deletes a named moment of a world.
DELETE FROM saves WHERE world = $1 AND name = $2 RETURNING name;

-- name: abandoned_timeline
-- Finds the latest timeline that no world, no save and no other timeline goes on from.
SELECT timeline.id FROM timelines AS timeline
WHERE NOT EXISTS (SELECT FROM worlds WHERE worlds.timeline_id = timeline.id)
    AND NOT EXISTS (SELECT FROM saves WHERE saves.timeline_id = timeline.id)
    AND NOT EXISTS (
        SELECT FROM timelines AS later WHERE later.ancestors @> ARRAY[timeline.id]
    )
ORDER BY timeline.id DESC LIMIT 1;

-- name: lock_accounts_of_timeline
-- Lists the accounts of a timeline, and lets no mind of theirs begin until the transaction ends.
SELECT id FROM users
WHERE id = ANY (ARRAY(
    SELECT player.id FROM users AS player
    WHERE starts_with(player.external_id, E'\n')
        AND player.external_id ~>=~ (E'\n' || $1::bigint::text || '/')
        AND player.external_id ~<~ (E'\n' || $1::bigint::text || '0')
) || $1::bigint) ORDER BY id FOR UPDATE;

-- name: minds_of_accounts
-- Lists the minds of some accounts.
SELECT id FROM relationships WHERE user_id = ANY ($1::bigint[]) ORDER BY id;

-- name: lock_first_events
-- Lists the first events of a timeline with their witnesses, and locks them.
SELECT seq, witnesses FROM world_events WHERE timeline_id = $1 ORDER BY seq LIMIT $2 FOR UPDATE;

-- name: delete_world_events
-- Deletes events of a timeline, and how they were witnessed.
WITH gone AS (
    DELETE FROM witnesses
    WHERE timeline_id = $1 AND seq = ANY ($2::bigint[]) AND relationship_id = ANY ($3::bigint[])
), waiting AS (
    DELETE FROM events_to_forget WHERE timeline_id = $1 AND seq = ANY ($2::bigint[])
)
DELETE FROM world_events WHERE timeline_id = $1 AND seq = ANY ($2::bigint[]);

-- name: delete_sources_of_timeline
-- Deletes of which events those of a timeline were made.
DELETE FROM event_sources WHERE timeline_id = $1 OR source_timeline_id = $1;

-- name: delete_timeline
-- Deletes a timeline with its scenes.
DELETE FROM timelines WHERE id = $1;

-- name: delete_accounts
-- Deletes accounts that have no minds.
DELETE FROM users WHERE id = ANY ($1::bigint[]);

-- name: insert_save
-- Names a moment of a world; a name that is used already is moved to it.
INSERT INTO saves (world, name, timeline_id, clock_time, clock_factor, saved_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (world, name) DO UPDATE
SET timeline_id = excluded.timeline_id, clock_time = excluded.clock_time,
    clock_factor = excluded.clock_factor, saved_at = excluded.saved_at;

-- name: find_save
-- Reads a named moment of a world.
SELECT save.timeline_id, timeline.ancestors, save.clock_time, save.clock_factor
FROM saves AS save JOIN timelines AS timeline ON timeline.id = save.timeline_id
WHERE save.world = $1 AND save.name = $2;

-- name: saves_of_world
-- Lists the named moments of a world, the latest first.
SELECT name, saved_at, clock_time FROM saves WHERE world = $1 ORDER BY saved_at DESC, name;
