#!/bin/sh
# Prints the variables of deploy/compose.yaml, with random passwords:
#   sh deploy/compose/new-env.sh > deploy/.env
# Every run makes new passwords, and a database keeps those it was created with: run it once.
set -eu
# The caller's shell has made the file, for whomever its umask lets read it.
if [ -f /dev/stdout ]; then chmod 600 /dev/stdout; fi
secret() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
cat <<END
COMPOSE_PROJECT_NAME=foremind
POSTGRES_PASSWORD=$(secret)
GATEWAY_PASSWORD=$(secret)
NATS_PASSWORD=$(secret)
GRAFANA_PASSWORD=$(secret)
# Signs players' tokens; your game server needs it too.
FOREMIND_AUTH_SECRET=$(secret)
# The host that players connect to, as in the certificate, with a port unless it is 443.
DOMAIN=
# A PEM file with the certificate chain and its key, readable by user 99: chown 99 FILE
TLS_PEM=
# The language model, for example:
# FOREMIND_LLM_URL=http://models.internal:8000/v1
# FOREMIND_LLM_MODEL=Qwen/Qwen3-4B-Instruct-2507
END
