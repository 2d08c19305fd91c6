-- How a document was cut: 1 in chunks of 800 tokens that share 400, 2 in passages.
-- What was cut in an earlier way is cut anew by the server.
ALTER TABLE documents ADD COLUMN cut smallint NOT NULL DEFAULT 1;
CREATE INDEX documents_by_cut ON documents (cut);
