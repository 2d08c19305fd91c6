-- name: extensions
-- Lists the extensions of this database.
SELECT extname FROM pg_extension;

-- name: has_citus
-- Returns whether this is a Citus database.
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus');

-- name: is_distributed
-- Returns whether the relationships of a Citus database are spread over its nodes.
SELECT EXISTS (
    SELECT FROM pg_dist_partition
    WHERE logicalrelid = to_regclass('relationships') AND partmethod = 'h'
);

-- name: is_coordinator
-- Returns whether this node of a Citus database is its coordinator.
SELECT citus_is_coordinator();

-- name: tables_to_distribute
-- Lists the tables of this database that Citus does not spread or copy to its nodes yet.
SELECT relname::text AS name FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND NOT EXISTS (
    SELECT FROM pg_dist_partition
    WHERE logicalrelid = pg_class.oid AND (partmethod = 'h' OR repmodel = 't')
);

-- name: nodes_for_shards
-- Counts the nodes that take shards.
SELECT count(*) FROM pg_dist_node WHERE isactive AND shouldhaveshards;

-- name: sees_every_row
-- Returns whether this login bypasses row-level security.
SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user;

-- name: servers_connected
-- Counts the connections that servers have to this database.
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'foremind' AND pid <> pg_backend_pid();

-- name: foreign_keys
-- Lists the foreign keys of this database, with statements that drop and create each.
SELECT
    format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) AS drop,
    format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname,
        pg_get_constraintdef(oid)) AS create
FROM pg_constraint
WHERE contype = 'f' AND connamespace = 'public'::regnamespace AND conparentid = 0
    AND relation_is_a_known_shard(conrelid) IS NOT TRUE  -- those change with their tables
ORDER BY oid;

-- name: prepare_distribution
-- Makes a transaction visit one node at a time, and create tables as plain ones.
SET LOCAL citus.multi_shard_modify_mode = 'sequential';
SET LOCAL citus.enable_local_reference_table_foreign_keys = off;

-- name: message_ids_by_relationship
-- Makes message ids unique within a relationship instead of a user: no node has all of a user.
DROP INDEX turns_by_message;
CREATE UNIQUE INDEX turns_by_message ON turns (relationship_id, message_id);

-- name: copy_to_nodes
-- Copies a table to every node.
SELECT create_reference_table($1::text::regclass);

-- name: distribute_owner
-- Spreads the relationships over the nodes.
SELECT create_distributed_table(
    $1::text::regclass, 'id', colocate_with => 'none', shard_count => $2
);

-- name: distribute_owned
-- Spreads a table over the nodes, each row with its relationship.
SELECT create_distributed_table(
    $1::text::regclass, 'relationship_id', colocate_with => $2
);

-- name: truncate_local_data
-- Deletes what a spread or copied table still holds on the coordinator outside of its shards.
SELECT truncate_local_data_after_distributing_table($1::text::regclass);

-- name: shard_nodes
-- Lists the nodes of a Citus database, with the shards that each holds and their size.
SELECT node.nodename AS host, node.nodeport AS port, node.isactive AS active,
    node.groupid = 0 AS coordinator, count(shard.shardid) AS shards,
    coalesce(sum(shard.shard_size), 0)::bigint AS bytes
FROM pg_dist_node AS node
LEFT JOIN citus_shards AS shard ON shard.nodename = node.nodename AND shard.nodeport = node.nodeport
    AND shard.citus_table_type = 'distributed'
GROUP BY node.nodeid, node.nodename, node.nodeport, node.isactive, node.groupid
ORDER BY node.groupid;

-- name: shard_tables
-- Lists the tables that Citus spreads or copies, with their shards and size.
SELECT table_name::text AS name, citus_table_type AS kind, distribution_column AS column,
    shard_count AS shards, citus_total_relation_size(table_name, false) AS bytes
FROM citus_tables ORDER BY citus_table_type, table_name::text;
