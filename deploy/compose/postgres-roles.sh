#!/bin/sh
# Run once, when the database is created: the login of the gateways, which owns nothing and to which
# row-level security applies.
set -eu
psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'END'
\getenv password GATEWAY_PASSWORD
CREATE ROLE foremind_server LOGIN NOSUPERUSER NOBYPASSRLS;
CREATE ROLE gateway LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'password' IN ROLE foremind_server;
END
