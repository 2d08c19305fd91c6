-- What goes on in a session as the game or client tells it, until the session is over.
CREATE TABLE session_states (
    session_id uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    relationship_id bigint NOT NULL REFERENCES relationships,
    task text NOT NULL DEFAULT '',
    -- As it was written: jsonb would write large numbers out, digit by digit.
    flags json NOT NULL DEFAULT '{}',
    set_at timestamptz NOT NULL
);
CREATE INDEX session_states_by_relationship ON session_states (relationship_id);

ALTER TABLE session_states ENABLE ROW LEVEL SECURITY;
ALTER TABLE session_states FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON session_states
    USING (relationship_id = (SELECT foremind_relationship()));
