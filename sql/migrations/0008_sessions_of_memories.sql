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
