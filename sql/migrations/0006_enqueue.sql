-- Adds a job for a turn, as pgqueuer's own enqueue does, from within the statement that stores it.
CREATE FUNCTION foremind_enqueue(job text, relationship bigint, turn bigint) RETURNS bigint
LANGUAGE sql
BEGIN ATOMIC
    WITH added AS (
        INSERT INTO pgqueuer (priority, entrypoint, payload, status)
        VALUES (0, job, convert_to(relationship || ':' || turn, 'UTF8'), 'queued')
        RETURNING id, priority, entrypoint, status
    ), logged AS (
        INSERT INTO pgqueuer_log (job_id, priority, entrypoint, status) SELECT * FROM added
    )
    SELECT id FROM added;
END;
