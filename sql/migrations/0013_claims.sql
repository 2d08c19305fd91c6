-- Until when a worker holds a relationship that it curates. Apart from due_at, which a reply sets:
-- what is made due while it is curated waits for the end of that, and nobody does it twice.
ALTER TABLE relationships ADD COLUMN claimed_until timestamptz;
