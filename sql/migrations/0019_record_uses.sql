-- How often a record stood in a prompt that a reply was made of, and when it last did.
ALTER TABLE records
    ADD COLUMN used integer NOT NULL DEFAULT 0,
    ADD COLUMN used_at timestamptz;
