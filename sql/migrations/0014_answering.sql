-- Which process answers a user's turn, and until when at the latest. A process is there as long as it
-- holds the advisory lock of its number: what one that died was answering, another may answer at once.
ALTER TABLE turns ADD COLUMN answering_by bigint, ADD COLUMN answering_until timestamptz;

CREATE FUNCTION foremind_answering(process bigint, until timestamptz, moment timestamptz)
RETURNS boolean LANGUAGE sql VOLATILE
RETURN CASE
    WHEN process IS NULL OR until <= moment THEN false
    ELSE NOT pg_try_advisory_xact_lock_shared(process)
END;
