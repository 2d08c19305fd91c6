-- How a question stands is one of a closed list; records of other layers have no such word.

-- The owner, too, sees rows only while row-level security is not forced.
ALTER TABLE records NO FORCE ROW LEVEL SECURITY;
UPDATE records SET details = details - 'status' WHERE layer <> 'questions' AND details ? 'status';
UPDATE records SET details = jsonb_set(details, '{status}', '"settled"')
WHERE layer = 'questions' AND details ->> 'status' NOT IN ('open', 'settled');
ALTER TABLE records FORCE ROW LEVEL SECURITY;
