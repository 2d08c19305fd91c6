-- name: session_state
-- Reads the state of a session.
SELECT task, flags, version FROM session_states WHERE relationship_id = $1 AND session_id = $2;

-- name: lock_state
-- Reads the state of an open session, creating it, and locks it.
INSERT INTO session_states (session_id, relationship_id, set_at)
SELECT id, relationship_id, $3 FROM sessions
WHERE relationship_id = $1 AND id = $2 AND closed_at IS NULL
ON CONFLICT (relationship_id, session_id) DO UPDATE SET set_at = excluded.set_at
RETURNING task, flags;

-- name: states_of_relationship
-- Reads the states of a relationship's sessions, and locks them.
SELECT session_id, task, flags FROM session_states WHERE relationship_id = $1 FOR UPDATE;

-- name: put_state
-- Replaces the state of a session. No later state has this version, also after one was deleted.
UPDATE session_states
SET task = $3, flags = $4,
    version = greatest(version + 1, (extract(epoch FROM now()) * 1000000)::bigint)
WHERE relationship_id = $1 AND session_id = $2
RETURNING version;

-- name: delete_states
-- Deletes the states of a relationship's sessions.
DELETE FROM session_states WHERE relationship_id = $1;

-- name: import_state
-- Stores the state of an imported session.
INSERT INTO session_states (session_id, relationship_id, task, flags, set_at)
VALUES ($2, $1, $3, $4, $5);
