-- name: session_state
-- Reads what goes on in a session, if anything was told of it.
SELECT task, flags FROM session_states WHERE relationship_id = $1 AND session_id = $2;

-- name: state_to_change
-- Reads what goes on in a session that is not over, and lets nobody else change it meanwhile.
INSERT INTO session_states (session_id, relationship_id, set_at)
SELECT id, relationship_id, $3 FROM sessions
WHERE relationship_id = $1 AND id = $2 AND closed_at IS NULL
ON CONFLICT (session_id) DO UPDATE SET set_at = excluded.set_at
RETURNING task, flags;

-- name: states_of_relationship
-- Reads what goes on in the sessions of a relationship, and lets nobody else change it meanwhile.
SELECT session_id, task, flags FROM session_states WHERE relationship_id = $1 FOR UPDATE;

-- name: put_state
-- Puts what is left of the state of a session in its place.
UPDATE session_states SET task = $3, flags = $4 WHERE relationship_id = $1 AND session_id = $2;

-- name: delete_states
-- Deletes what goes on in the sessions of a relationship.
DELETE FROM session_states WHERE relationship_id = $1;

-- name: import_state
-- Stores what goes on in an imported session.
INSERT INTO session_states (session_id, relationship_id, task, flags, set_at)
VALUES ($2, $1, $3, $4, $5);
