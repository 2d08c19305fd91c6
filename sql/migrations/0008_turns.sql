-- What is known of a turn beside its text, and of a memory by its turn.

ALTER TABLE turns
    -- Whether it says something else than what was sent, because its user corrected it.
    ADD COLUMN corrected boolean NOT NULL DEFAULT false,
    -- Whether it is to be remembered: else its text is erased when its session is over.
    ADD COLUMN kept boolean NOT NULL DEFAULT true,
    -- Which process answers a user's turn, and until when at the latest.
    ADD COLUMN answering_by bigint,
    ADD COLUMN answering_until timestamptz;
CREATE INDEX turns_unkept ON turns (session_id) WHERE NOT kept;

-- A process is there as long as it holds the advisory lock of its number: what one that died was
-- answering, another may answer at once.
CREATE FUNCTION foremind_answering(process bigint, until timestamptz, moment timestamptz)
RETURNS boolean LANGUAGE sql VOLATILE
RETURN CASE
    WHEN process IS NULL OR until <= moment THEN false
    ELSE NOT pg_try_advisory_xact_lock_shared(process)
END;

-- The session that a memory's turn stands in, beside the memory: ranking asks for it with each.
-- NULL: it was said in none.
ALTER TABLE memories ADD COLUMN session_id uuid;

-- The owner, too, sees rows only while row-level security is not forced.
ALTER TABLE memories NO FORCE ROW LEVEL SECURITY;
ALTER TABLE turns NO FORCE ROW LEVEL SECURITY;
UPDATE memories AS memory SET session_id = turn.session_id
FROM turns AS turn WHERE turn.id = memory.source_turn_id;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
ALTER TABLE turns FORCE ROW LEVEL SECURITY;
