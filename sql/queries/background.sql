-- name: relationships_due
-- Lists relationships with something to do, of each kind those that have waited the longest.
-- Excluded are places that are full, and companions at their limit at a place.
(
    SELECT 'ingest' AS kind, relationship_id FROM background_steps
    WHERE $3 AND lane = 'ingest' AND due_at <= $2 ORDER BY due_at LIMIT $10
)
UNION ALL
(SELECT 'activity', id FROM relationships WHERE due_at <= $2 ORDER BY due_at LIMIT $4)
UNION ALL
(
    SELECT 'steps', step.relationship_id
    FROM background_steps AS step
    LEFT JOIN background_claims AS claim ON claim.relationship_id = step.relationship_id
        AND claim.lane = step.lane AND claim.until > $1
    WHERE step.due_at <= $2 AND step.lane <> 'ingest' AND step.step = ANY ($9::text[])
        AND step.place <> ALL ($5::text[])
        AND NOT ($6 AND step.place <> '')
        AND NOT EXISTS (
            SELECT FROM unnest($7::text[], $8::bigint[]) AS full_of (place, companion_id)
            WHERE full_of.place = step.place AND full_of.companion_id = step.companion_id
        )
        AND claim.relationship_id IS NULL
    ORDER BY step.due_at LIMIT $10
);

-- name: claim_turns
-- Takes turns of a relationship that are to be ingested, those of an exchange that has just ended too.
-- They are due again at a later time, unless they are ingested by then.
-- What another worker takes at the same time is not due any more.
UPDATE background_steps SET due_at = $3
WHERE relationship_id = $1 AND step = 'ingest'
    AND (due_at <= $2 OR (due_at <= $6 AND turn_id = ANY ($4::bigint[])))
    AND turn_id IN (
        SELECT turn_id FROM background_steps
        WHERE relationship_id = $1 AND step = 'ingest'
            AND (due_at <= $2 OR (due_at <= $6 AND turn_id = ANY ($4::bigint[])))
        ORDER BY turn_id LIMIT $5
    )
RETURNING step, turn_id, lane, place, due_at, since, marks, attempts, code, held_at;

-- name: claim_steps
-- Schedules steps, claims lanes of a relationship, and returns the steps that are due in them.
-- Those that activity calls for are scheduled unless another worker did that, or there was more
-- activity meanwhile. Steps that are only given the lanes that they have now get no mark, or a worker
-- that is running them would run them again. A step that is due sooner stays so, and one that failed
-- backs off. A lane is not claimed if another worker holds it, or the relationship is being deleted.
WITH permitted AS MATERIALIZED (
    SELECT id, companion_id FROM relationships WHERE id = $1 FOR KEY SHARE SKIP LOCKED
), activity AS (
    UPDATE relationships SET due_at = NULL, gathered = 0, gathered_since = NULL
    FROM permitted WHERE relationships.id = $1 AND relationships.due_at = $3::timestamptz
    RETURNING relationships.id
), scheduled AS (
    INSERT INTO background_steps AS known
        (relationship_id, step, lane, place, companion_id, due_at, since)
    SELECT permitted.id, made.step, made.lane, made.place, permitted.companion_id, $2, $2
    FROM permitted, unnest($4::text[], $5::text[], $6::text[]) AS made (step, lane, place)
    WHERE CASE WHEN $14::boolean THEN EXISTS (
            SELECT FROM background_steps AS waiting
            WHERE waiting.relationship_id = $1 AND waiting.step = made.step AND waiting.turn_id = 0
                AND waiting.due_at <= $2
        ) ELSE $3 IS NULL OR EXISTS (SELECT FROM activity) END
    ON CONFLICT (relationship_id, step, turn_id) DO UPDATE
    SET marks = known.marks + (NOT $14)::integer, lane = excluded.lane, place = excluded.place,
        held_at = NULL,
        since = CASE
            WHEN known.attempts = 0 AND (known.due_at IS NULL OR known.due_at > $2)
            THEN $2 ELSE known.since END,
        due_at = CASE
            WHEN known.held_at IS NOT NULL
            -- In UTC, as in a sharded database an update may not depend on the session's time zone.
            THEN greatest($2, (known.held_at AT TIME ZONE 'UTC' + $7::interval) AT TIME ZONE 'UTC')
            WHEN known.attempts > 0 THEN known.due_at
            ELSE least(known.due_at, $2) END
    WHERE NOT $14 OR known.due_at <= $2
    RETURNING step, turn_id, lane, place, due_at, since, marks, attempts, code, held_at
), due AS (
    SELECT * FROM scheduled WHERE due_at <= $2
    UNION ALL
    SELECT step, turn_id, lane, place, due_at, since, marks, attempts, code, held_at
    FROM background_steps AS known
    WHERE relationship_id = $1 AND due_at <= $2 AND lane <> 'ingest' AND step = ANY ($8::text[])
        AND NOT EXISTS (
            SELECT FROM scheduled
            WHERE scheduled.step = known.step AND scheduled.turn_id = known.turn_id
        )
), claimed AS (
    INSERT INTO background_claims AS held (relationship_id, lane, place, holder, until)
    SELECT DISTINCT permitted.id, allowed.lane, allowed.place, $11::uuid, $12::timestamptz
    FROM permitted, due JOIN unnest($9::text[], $10::text[]) AS allowed (lane, place) USING (lane)
    ON CONFLICT (relationship_id, lane) DO UPDATE
    SET place = excluded.place, holder = excluded.holder, until = excluded.until
    WHERE held.until <= $2 OR held.holder = excluded.holder
    RETURNING lane
)
SELECT due.* FROM due JOIN claimed USING (lane) ORDER BY due.turn_id LIMIT $13;

-- name: retry_failed_steps
-- Makes failed and held steps of a relationship due now, with their attempts reset.
UPDATE background_steps SET due_at = $2, since = $2, marks = marks + 1, attempts = 0, held_at = NULL
WHERE relationship_id = $1 AND attempts > 0;

-- name: held_steps
-- Lists some steps that were held before a time, the longest held first.
SELECT relationship_id, step, turn_id FROM background_steps WHERE held_at <= $1
ORDER BY held_at LIMIT $2;

-- name: retry_held_step
-- Makes a step due that was held before a time, whether or not the relationship is active.
UPDATE background_steps SET due_at = $4, held_at = NULL, marks = marks + 1
WHERE relationship_id = $1 AND step = $2 AND turn_id = $3 AND held_at <= $5;

-- name: renew_claims
-- Extends the claims of a worker, and lists those that it still holds.
UPDATE background_claims SET until = $2
WHERE holder = $1 RETURNING relationship_id, lane;

-- name: renew_claim
-- Extends a worker's claim on a lane.
UPDATE background_claims SET until = $4 WHERE relationship_id = $1 AND lane = $2 AND holder = $3;

-- name: release_claim
-- Releases a worker's claim on a lane.
DELETE FROM background_claims WHERE relationship_id = $1 AND lane = $2 AND holder = $3;

-- name: release_claims
-- Releases all claims of a worker, so that others continue its steps at once.
DELETE FROM background_claims WHERE holder = $1;

-- name: steps_of_relationship
-- Reads the states of a relationship's steps; one for all turns that wait for the same step.
SELECT step, min(lane) AS lane, min(place) AS place, min(due_at) AS due_at, min(since) AS since,
    max(marks) AS marks, max(attempts) AS attempts,
    (array_agg(code ORDER BY attempts DESC))[1] AS code, CASE WHEN bool_and(held_at IS NOT NULL) THEN max(held_at) END AS held_at,
    count(*) FILTER (WHERE turn_id <> 0) AS turns
FROM background_steps WHERE relationship_id = $1 GROUP BY step;

-- name: finish_steps
-- Records what became of steps and when they are due next, and releases claims on their lanes.
-- One that succeeded is due sooner if it was scheduled meanwhile.
WITH released AS (
    DELETE FROM background_claims
    WHERE relationship_id = $1 AND lane = ANY ($3::text[]) AND holder = $4::uuid
)
UPDATE background_steps AS known
SET due_at = CASE WHEN done.attempts > 0 OR known.marks = done.marks THEN done.due_at
        ELSE least(known.due_at, done.due_at) END,
    since = CASE WHEN done.attempts > 0 THEN known.since ELSE $2 END,
    attempts = done.attempts, code = done.code, held_at = done.held_at
FROM unnest(
    $5::text[], $6::bigint[], $7::timestamptz[], $8::integer[], $9::text[], $10::timestamptz[],
    $11::bigint[]
) AS done (step, marks, due_at, attempts, code, held_at, turn_id)
WHERE known.relationship_id = $1 AND known.step = done.step AND known.turn_id = done.turn_id;

-- name: drop_turn
-- Records that there is nothing for a step to do with a turn, unless it was requested meanwhile.
DELETE FROM background_steps
WHERE relationship_id = $1 AND step = $2 AND turn_id = $3 AND marks = $4;

-- name: claims_of_relationship
-- Lists the lanes of a relationship that are claimed.
SELECT lane FROM background_claims WHERE relationship_id = $1 AND until > $2;

-- name: claims_at_place
-- Counts the claims at a model server.
SELECT count(*) FROM background_claims WHERE place = $1 AND until > $2;

-- name: turns_behind
-- Counts the turns after each cursor of a relationship, up to a limit.
SELECT mark.name, (
    SELECT count(*) FROM (
        SELECT FROM turns
        WHERE relationship_id = $1 AND id > mark.upto AND removed_at IS NULL AND kept
        LIMIT $4
    ) AS counted
) AS behind
FROM unnest($2::text[], $3::bigint[]) AS mark (name, upto);

-- name: full_places
-- Lists the model servers with as many claims as they may have.
SELECT place FROM background_claims WHERE until > $1 AND place <> ''
GROUP BY place HAVING count(*) >= $2;

-- name: background_waiting
-- Counts the waiting steps by step and reason, with the oldest, up to a limit for each kind.
SELECT step, reason, count(*) AS waiting, min(since) AS oldest
FROM (
    (
        SELECT step.step, step.since, CASE
            WHEN claim.relationship_id IS NOT NULL THEN 'running'
            WHEN step.place = ANY ($3::text[]) THEN 'model'
            ELSE 'due' END AS reason
        FROM background_steps AS step
        LEFT JOIN background_claims AS claim ON claim.relationship_id = step.relationship_id
            AND claim.lane = step.lane AND claim.until > $1
        WHERE step.due_at <= $1 AND step.lane <> 'ingest' ORDER BY step.due_at LIMIT $2
    )
    UNION ALL
    (
        SELECT step, since, CASE WHEN due_at > $1 THEN 'running' ELSE 'due' END
        FROM background_steps
        WHERE attempts = 0 AND lane = 'ingest' ORDER BY due_at LIMIT $2
    )
    UNION ALL
    (
        SELECT step, since, CASE WHEN held_at IS NULL THEN 'backing_off' ELSE 'held' END
        FROM background_steps
        WHERE attempts > 0 AND (due_at IS NULL OR due_at > $1) LIMIT $2
    )
) AS waiting
GROUP BY step, reason;

-- name: schedule_relationship
-- Makes a relationship due for background work, whatever is being gathered.
UPDATE relationships SET due_at = $2 WHERE id = $1;

-- name: relationship_state
-- Reads the participants, settings and cursors of a relationship, and what is due there.
SELECT relationship.id, relationship.companion_id, account.name AS user_name, account.time_zone, account.language,
    companion.name AS companion_name,
    companion.settings AS companion_settings, relationship.settings, relationship.operator_settings,
    relationship.stated_turn_id, relationship.noted_turn_id, relationship.summarised_turn_id,
    relationship.narrated_turn_id, relationship.habits_at, relationship.dismissed, relationship.salt,
    relationship.erasures,
    relationship.remade::text AS remade, relationship.due_at,
    starts_with(account.external_id, E'\n') AS in_world,
    array(
        SELECT step.step FROM background_steps AS step
        WHERE step.relationship_id = $1 AND step.due_at <= $2 AND step.lane <> 'ingest'
        ORDER BY step.turn_id LIMIT $3
    ) AS steps_due,
    array(
        SELECT session.id FROM sessions AS session
        WHERE session.relationship_id = $1 AND session.closed_at IS NULL ORDER BY session.active_at
    ) AS sessions_open,
    array(
        SELECT session.active_at FROM sessions AS session
        WHERE session.relationship_id = $1 AND session.closed_at IS NULL ORDER BY session.active_at
    ) AS sessions_active_at
FROM relationships AS relationship
JOIN companions AS companion ON companion.id = relationship.companion_id
JOIN users AS account ON account.id = relationship.user_id
WHERE relationship.id = $1;

-- name: turns_after
-- Lists what was said in a relationship after a cursor, with significance and use in episodes.
SELECT turn.id, turn.session_id, turn.speaker, turn.content, turn.created_at,
    turn.embedding AS vector,
    coalesce(memory.significance, 0) AS significance,
    EXISTS (
        SELECT FROM record_sources AS source
        JOIN records AS record ON record.relationship_id = source.relationship_id
            AND record.id = source.record_id
        WHERE source.relationship_id = $1 AND source.turn_id = turn.id
            AND record.layer = 'episodes'
    ) AS narrated
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
WHERE turn.relationship_id = $1 AND turn.id > $2 AND turn.removed_at IS NULL AND turn.kept
    AND turn.event_id IS NULL
ORDER BY turn.id LIMIT $3;

-- name: count_turns
-- Counts what was said in a relationship, up to a limit.
SELECT count(*) FROM (
    SELECT FROM turns
    WHERE relationship_id = $1 AND removed_at IS NULL AND event_id IS NULL LIMIT $2
) AS counted;

-- name: unkept_turns
-- Lists the turns in closed sessions of a relationship that are not to be kept.
SELECT turn.id
FROM turns AS turn
JOIN sessions AS session
    ON session.relationship_id = turn.relationship_id AND session.id = turn.session_id
WHERE turn.relationship_id = $1 AND NOT turn.kept AND turn.removed_at IS NULL
    AND session.closed_at IS NOT NULL
ORDER BY turn.id;

-- name: relationships_to_check
-- Lists relationships that were not checked for a day, with whether retention applies to them.
-- It does not to those in worlds, whose time is not real.
SELECT relationship.id, NOT starts_with(account.external_id, E'\n')
    AND ($2 OR relationship.settings ? 'retention_days'
        OR relationship.operator_settings ? 'retention_days'
        OR companion.settings ? 'retention_days') AS applies
FROM relationships AS relationship
JOIN companions AS companion ON companion.id = relationship.companion_id
JOIN users AS account ON account.id = relationship.user_id
WHERE relationship.woken_at <= $1 ORDER BY relationship.woken_at LIMIT $3;

-- name: schedule_retention
-- Records that a relationship was checked, and makes it due if retention applies to it.
UPDATE relationships
SET woken_at = $2, due_at = CASE WHEN $3 THEN least(due_at, $2) ELSE due_at END
WHERE id = $1 AND woken_at < $2;

-- name: close_session
-- Closes a session, unless it was active meanwhile; deletes its state, and replies that do not stand.
-- If it has a state, prompts with one go, too.
WITH closed AS (
    UPDATE sessions SET closed_at = $3
    WHERE id = $1 AND relationship_id = $2 AND active_at <= $4
    RETURNING id
), alternatives AS (
    DELETE FROM alternative_replies AS other USING turns AS message
    WHERE other.relationship_id = $2 AND message.relationship_id = $2
        AND message.id = other.turn_id AND message.session_id IN (SELECT id FROM closed)
), prompts AS (
    DELETE FROM reply_prompts
    WHERE relationship_id = $2 AND prompt LIKE '%<state>%' AND EXISTS (
        SELECT FROM session_states
        WHERE relationship_id = $2 AND session_id IN (SELECT id FROM closed)
    )
)
DELETE FROM session_states
WHERE relationship_id = $2 AND session_id IN (SELECT id FROM closed)
RETURNING session_id;

-- name: session_usage
-- Reads how often the user spoke in the latest sessions, and how many bytes in all.
SELECT session.id, count(*) AS said, sum(octet_length(turn.content)) AS bytes
FROM sessions AS session
JOIN turns AS turn
    ON turn.relationship_id = session.relationship_id AND turn.session_id = session.id
WHERE session.relationship_id = $1 AND turn.removed_at IS NULL AND turn.speaker = 'user'
GROUP BY session.relationship_id, session.id
ORDER BY min(turn.created_at) DESC
LIMIT 60;

-- name: advance_cursors
-- Advances cursors, if they were where the work began, and raises the version of the records.
-- A cursor that is not given stays, and one whose beginning is not given may have been anywhere.
UPDATE relationships
SET stated_turn_id = greatest(stated_turn_id, $2), noted_turn_id = greatest(noted_turn_id, $3),
    summarised_turn_id = greatest(summarised_turn_id, $4),
    narrated_turn_id = greatest(narrated_turn_id, $5),
    layers_version = layers_version + $10::integer
WHERE id = $1 AND stated_turn_id = coalesce($6, stated_turn_id)
    AND noted_turn_id = coalesce($7, noted_turn_id)
    AND summarised_turn_id = coalesce($8, summarised_turn_id)
    AND narrated_turn_id = coalesce($9, narrated_turn_id)
RETURNING layers_version AS version;

-- name: record_usage_patterns_at
-- Records when a relationship's usage patterns were updated.
UPDATE relationships SET habits_at = $2 WHERE id = $1;

-- name: message_of_reply
-- Finds the message that a reply answers.
SELECT reply_to FROM turns
WHERE relationship_id = $1 AND id = $2 AND reply_to IS NOT NULL;

-- name: turns_by_id
-- Reads turns that have a text or a memory, with significance and use in episodes.
-- An expired text is replaced by that of its memory, or of the memory it was merged into.
SELECT turn.id, turn.session_id, turn.speaker, turn.created_at,
    CASE WHEN turn.removed_at IS NULL THEN turn.content
        ELSE coalesce(memory.content, joined.content) END AS content,
    coalesce(memory.significance, 0) AS significance,
    EXISTS (
        SELECT FROM record_sources AS source
        JOIN records AS record ON record.relationship_id = source.relationship_id
            AND record.id = source.record_id
        WHERE source.relationship_id = $1 AND source.turn_id = turn.id
            AND record.layer = 'episodes'
    ) AS narrated
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
LEFT JOIN memory_sources AS again
    ON again.relationship_id = turn.relationship_id AND again.turn_id = turn.id
LEFT JOIN memories AS joined
    ON joined.relationship_id = again.relationship_id AND joined.id = again.memory_id
WHERE turn.relationship_id = $1 AND turn.id = ANY ($2::bigint[])
    AND (turn.removed_at IS NULL OR memory.id IS NOT NULL OR joined.id IS NOT NULL)
ORDER BY turn.id;

-- name: last_closed_session
-- Lists the turns of a relationship's last closed session that has texts or memories.
-- An expired text is replaced by that of its memory, or of the memory it was merged into.
SELECT turn.id, turn.session_id, turn.speaker, turn.created_at,
    CASE WHEN turn.removed_at IS NULL THEN turn.content
        ELSE coalesce(memory.content, joined.content) END AS content,
    coalesce(memory.significance, 0) AS significance, false AS narrated
FROM turns AS turn
LEFT JOIN memories AS memory
    ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
LEFT JOIN memory_sources AS again
    ON again.relationship_id = turn.relationship_id AND again.turn_id = turn.id
LEFT JOIN memories AS joined
    ON joined.relationship_id = again.relationship_id AND joined.id = again.memory_id
WHERE turn.relationship_id = $1 AND turn.kept
    AND (turn.removed_at IS NULL OR memory.id IS NOT NULL OR joined.id IS NOT NULL)
    AND turn.session_id = (
        SELECT session.id FROM sessions AS session
        WHERE session.relationship_id = $1 AND session.closed_at IS NOT NULL
            AND EXISTS (
                SELECT FROM turns AS said
                WHERE said.relationship_id = $1 AND said.session_id = session.id AND said.kept
                    AND (said.removed_at IS NULL
                        OR EXISTS (SELECT FROM memories
                                   WHERE relationship_id = $1 AND source_turn_id = said.id)
                        OR EXISTS (SELECT FROM memory_sources
                                   WHERE relationship_id = $1 AND turn_id = said.id))
            )
        ORDER BY session.active_at DESC LIMIT 1
    )
ORDER BY turn.id LIMIT $2;

-- name: schedule_rebuild
-- Makes a relationship due for regeneration; with $3, of the summary from the first turn.
UPDATE relationships
SET due_at = $2, summarised_turn_id = CASE WHEN $3 THEN 0 ELSE summarised_turn_id END
WHERE id = $1;
