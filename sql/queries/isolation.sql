-- name: create_server_role
-- Creates the role that the server assumes, to which row-level security applies.
-- It has no password, so it can log in only over a trusted socket, as the embedded database's.
DO $$
BEGIN
    CREATE ROLE foremind_server LOGIN NOSUPERUSER NOBYPASSRLS;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

-- name: grant_server_role
-- Lets the server's role read and write rows, and change nothing else.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO foremind_server;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO foremind_server;
REVOKE INSERT, UPDATE, DELETE ON schema_migrations FROM foremind_server;
DO $$
BEGIN
    IF NOT pg_has_role(current_user, 'foremind_server', 'SET') THEN
        GRANT foremind_server TO CURRENT_USER;
    END IF;
END
$$;

-- name: may_take_server_role
-- Returns whether the server's role exists and this login may assume it.
SELECT EXISTS (
    SELECT FROM pg_roles
    WHERE rolname = 'foremind_server' AND pg_has_role(current_user, oid, 'SET')
);

-- name: unprotected_tables
-- Lists tables with users' words to which row-level security does not apply.
SELECT name FROM unnest(ARRAY[
    'turns', 'alternative_replies', 'memories', 'memory_terms', 'memory_sources', 'memory_facts',
    'memory_changes', 'records', 'record_sources', 'record_revisions', 'audit', 'session_states',
    'world_events', 'witnesses', 'reply_prompts'
]) AS name
WHERE NOT row_security_active(name::regclass);
