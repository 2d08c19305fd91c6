-- name: last_exchange
-- Reads the last message of a session, and the reply to it that stands.
SELECT message.id AS turn_id, message.message_id, message.content AS text, message.kept,
    message.regenerated_by, reply.id AS reply_id, reply.position, reply.status,
    reply.content AS reply, reply.created_at
FROM turns AS message
LEFT JOIN turns AS reply
    ON reply.relationship_id = message.relationship_id AND reply.reply_to = message.id
        AND reply.removed_at IS NULL
WHERE message.relationship_id = $1 AND message.session_id = $2 AND message.speaker = 'user'
    AND message.removed_at IS NULL
ORDER BY message.id DESC LIMIT 1;

-- name: alternative_replies
-- Lists the replies to a message that do not stand, the earliest first.
SELECT position, status, content AS text, created_at FROM alternative_replies
WHERE relationship_id = $1 AND turn_id = $2 ORDER BY position;

-- name: turn_of_message
-- Finds the turn that is stored under a user's message id.
SELECT id FROM turns WHERE relationship_id = $1 AND user_id = $2 AND message_id = $3;

-- name: delete_alternatives
-- Deletes all replies of a relationship that do not stand.
DELETE FROM alternative_replies WHERE relationship_id = $1;

-- name: delete_other_alternatives
-- Deletes the replies that do not stand to any message but one, and of that all but the latest.
DELETE FROM alternative_replies
WHERE relationship_id = $1
    AND (
        turn_id IS DISTINCT FROM $2
        OR position <= (
            SELECT earlier.position FROM alternative_replies AS earlier
            WHERE earlier.relationship_id = $1 AND earlier.turn_id = $2
            ORDER BY earlier.position DESC OFFSET $3 LIMIT 1
        )
    );

-- name: insert_alternatives
-- Stores replies to a message that do not stand.
INSERT INTO alternative_replies (relationship_id, turn_id, position, status, content, created_at)
SELECT relationship.id, $2, given.position, given.status, given.content, given.created_at
FROM relationships AS relationship,
    unnest($3::integer[], $4::text[], $5::text[], $6::timestamptz[])
        AS given (position, status, content, created_at)
WHERE relationship.id = $1;

-- name: untie_removed_reply
-- Makes room for another reply to a message whose reply was removed.
UPDATE turns SET reply_to = NULL
WHERE relationship_id = $1 AND reply_to = $2 AND removed_at IS NOT NULL;

-- name: note_regeneration
-- Records which request for another reply to a message was the last.
UPDATE turns SET regenerated_by = $3 WHERE relationship_id = $1 AND id = $2;

-- name: insert_standing_reply
-- Stores a reply that the player chose, in place of the one that stood.
INSERT INTO turns
    (relationship_id, session_id, user_id, speaker, reply_to, status, content, created_at, kept,
     position)
SELECT message.relationship_id, message.session_id, message.user_id, 'companion', message.id, $3,
    $4, $5, message.kept AND (relationship.consented_at IS NOT NULL OR NOT $7::boolean), $6
FROM turns AS message
JOIN relationships AS relationship ON relationship.id = message.relationship_id
WHERE message.relationship_id = $1 AND message.id = $2
ON CONFLICT (relationship_id, reply_to) DO NOTHING
RETURNING id, kept;
