-- Users as wholes: erased everywhere, asked before anything is remembered, let go by the calendar.

-- A turn that is not to be remembered: its text is erased when its session is over.
ALTER TABLE turns ADD COLUMN kept boolean NOT NULL DEFAULT true;
CREATE INDEX turns_unkept ON turns (session_id) WHERE NOT kept;

ALTER TABLE relationships
    -- When the user agreed to be remembered, where the companion asks for it.
    ADD COLUMN consented_at timestamptz,
    -- When it was last woken to let go of what is past its days.
    ADD COLUMN woken_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX relationships_by_waking ON relationships (woken_at);

-- With what erased users are called where they must be known again: in their own revocations.
CREATE TABLE pseudonym_key (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    key uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO pseudonym_key DEFAULT VALUES;

-- That somebody was erased, when, on whose behalf and how much: nothing tells who it was.
CREATE TABLE erased_users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    erased_at timestamptz NOT NULL,
    by_operator boolean NOT NULL,
    receipt jsonb NOT NULL
);

-- What somebody did in the memories of others keeps its place when they are erased: a transaction
-- that names them, and their pseudonym, sees it.
CREATE INDEX audit_by_actor ON audit (actor);
CREATE POLICY by_actor ON audit
    USING (actor IN (
        (SELECT nullif(current_setting('foremind.actor', true), '')),
        (SELECT nullif(current_setting('foremind.pseudonym', true), ''))
    ));
