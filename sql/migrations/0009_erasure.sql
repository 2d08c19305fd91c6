-- Forgetting exactly: what began before is refused, and what was made of it is made again.

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
