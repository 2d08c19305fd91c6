-- name: insert_mind_prompt
-- Stores what a mind said an event after, unless something was removed since that was put together.
-- It takes the place of the mind's earliest ($5).
WITH mind AS (
    -- Locked, so that whoever removes something now finds it.
    UPDATE relationships SET removals = removals WHERE id = $1 AND removals = $3 RETURNING id
), earlier AS (
    DELETE FROM reply_prompts
    WHERE relationship_id = $1 AND (number, position) <= (
        SELECT number, position FROM reply_prompts
        WHERE relationship_id = $1 ORDER BY number DESC, position DESC OFFSET $5 - 1 LIMIT 1
    )
)
INSERT INTO reply_prompts (relationship_id, number, position, prompt)
SELECT mind.id, $2::bigint, 0, $4::text FROM mind
ON CONFLICT DO NOTHING; -- else Citus would COPY it, which row-level security refuses

-- name: prompt_of_turn
-- Reads the prompt of a reply that stands, by its turn or that of the message that it answers.
-- A turn without one has NULL.
SELECT (
    SELECT made.prompt FROM turns AS reply
    JOIN reply_prompts AS made ON made.relationship_id = reply.relationship_id
        AND made.number = reply.reply_to AND made.position = reply.position
    WHERE reply.relationship_id = $1 AND (reply.id = $2 OR reply.reply_to = $2)
        AND reply.removed_at IS NULL
) AS prompt
FROM turns WHERE relationship_id = $1 AND id = $2 AND removed_at IS NULL;

-- name: prompt_of_event
-- Reads the prompt of what a mind said, by the number of the event.
SELECT prompt FROM reply_prompts WHERE relationship_id = $1 AND number = $2;

-- name: reasons_of_memories
-- Reads why memories are significant.
SELECT id, reasons FROM memories WHERE relationship_id = $1 AND id = ANY ($2::bigint[]);

-- name: events_said
-- Finds which character said or did something, the number of that event, and who witnessed it.
SELECT actor_id, seq, witnesses FROM world_events
WHERE timeline_id = ANY ($1::bigint[]) AND id = ANY ($2::text[]) AND actor_id IS NOT NULL
ORDER BY seq;

-- name: delete_prompts
-- Deletes all prompts of a relationship.
DELETE FROM reply_prompts WHERE relationship_id = $1;
