-- How records stand and are used, and how documents are cut.

-- How often a record stood in a prompt that a reply was made of, and when it last did.
ALTER TABLE records
    ADD COLUMN used integer NOT NULL DEFAULT 0,
    ADD COLUMN used_at timestamptz;

-- How a question stands is one of a closed list; records of other layers have no such word.
-- The owner, too, sees rows only while row-level security is not forced.
ALTER TABLE records NO FORCE ROW LEVEL SECURITY;
UPDATE records SET details = details - 'status' WHERE layer <> 'questions' AND details ? 'status';
UPDATE records SET details = jsonb_set(details, '{status}', '"settled"')
WHERE layer = 'questions' AND details ->> 'status' NOT IN ('open', 'settled');
ALTER TABLE records FORCE ROW LEVEL SECURITY;

-- How a document was cut: 1 in chunks of 800 tokens that share 400, 2 in passages.
-- What was cut in an earlier way is cut anew by the server.
ALTER TABLE documents ADD COLUMN cut smallint NOT NULL DEFAULT 1;
CREATE INDEX documents_by_cut ON documents (cut);
