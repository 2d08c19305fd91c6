-- name: live_gateways
-- Lists the gateways whose process is alive, as it holds the lock of its presence.
SELECT name, url, presence, draining FROM gateways
WHERE NOT pg_try_advisory_xact_lock_shared(presence) ORDER BY name;

-- name: put_gateway
-- Records a gateway that is not draining, and deletes those whose process has ended.
WITH ended AS (
    DELETE FROM gateways WHERE name <> $1 AND pg_try_advisory_xact_lock_shared(presence)
)
INSERT INTO gateways (name, url, presence) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET url = $2, presence = $3, draining = false;

-- name: drain_gateway
-- Records that a process accepts no more sessions.
UPDATE gateways SET draining = true WHERE name = $1 AND presence = $2;
