-- name: server_version
-- Reads the version of the database server as a number.
SELECT current_setting('server_version_num')::int;

-- name: available_vector
-- Reads the installed version of pgvector, or else the one that could be installed.
SELECT coalesce(installed_version, default_version) FROM pg_available_extensions
WHERE name = 'vector';

-- name: lock_migrations
-- Waits until no other process migrates this database.
SELECT pg_advisory_xact_lock(7306086967069602157);

-- name: create_migrations_table
-- Creates the table of applied migrations.
CREATE TABLE IF NOT EXISTS schema_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: has_migrations_table
-- Returns whether any migration was applied.
SELECT to_regclass('schema_migrations') IS NOT NULL;

-- name: applied_migrations
-- Lists the applied migrations in order.
SELECT number, name, checksum FROM schema_migrations ORDER BY number;

-- name: record_migration
-- Records an applied migration.
INSERT INTO schema_migrations (number, name, checksum) VALUES ($1, $2, $3);

-- name: is_writable
-- Returns whether this connection may write, unlike one to a standby.
SELECT current_setting('transaction_read_only') = 'off';

-- name: probe_write
-- Writes a megabyte that is dropped at once, and a log record that is durable on commit.
WITH filler AS MATERIALIZED (
    SELECT repeat(md5(n::text), 32) AS line FROM generate_series(1, 1024) AS n
)
SELECT count(line), pg_logical_emit_message(true, 'foremind', 'probe') FROM filler;

-- name: ping
-- Returns 1.
SELECT 1;

-- name: database_identity
-- Reads what tells this database from any other.
SELECT system_identifier::text || '-' || (SELECT oid FROM pg_database WHERE datname = current_database())::text
FROM pg_control_system();

-- name: record_backup
-- Records that a backup was written just now.
INSERT INTO last_backup (finished_at) VALUES (now())
ON CONFLICT (only_row) DO UPDATE SET finished_at = now();

-- name: backup_age
-- Returns the seconds since the last backup; if there is none, since the database was created.
SELECT extract(epoch FROM now() - coalesce(
    (SELECT finished_at FROM last_backup), (SELECT min(applied_at) FROM schema_migrations)
))::float8;
