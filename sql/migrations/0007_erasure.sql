-- Forgetting exactly: what began before is refused, what was made of it is made again, and of users
-- who are erased nothing is left that tells who they were.

ALTER TABLE relationships
    -- Rises whenever something is forgotten or corrected: a reply or background work that began
    -- before is refused when it is to be written.
    ADD COLUMN erasures bigint NOT NULL DEFAULT 0,
    -- Turns whose notes were removed with a note's other sources, to be noted again: a list of
    -- {layer, turns}.
    ADD COLUMN remade jsonb NOT NULL DEFAULT '[]',
    -- Makes the digests in `dismissed` this relationship's own.
    ADD COLUMN salt uuid NOT NULL DEFAULT gen_random_uuid();

-- Deleting a turn looks for traces that name it.
CREATE INDEX memory_changes_by_turn ON memory_changes (other_turn_id);

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
