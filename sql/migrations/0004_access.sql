-- Tokens that no longer count: those of a user issued until a moment, or the one with an id.
CREATE TABLE revocations (
    subject text NOT NULL,
    token_id text,
    until timestamptz NOT NULL
);
CREATE INDEX revocations_by_subject ON revocations (subject);

-- When nobody could talk with it any more; what was said to it stays its users'.
ALTER TABLE companions ADD COLUMN retired_at timestamptz;
