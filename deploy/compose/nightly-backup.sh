#!/bin/sh
# Writes a backup every day at BACKUP_AT, in UTC, to /data/nightly-DAY.backup, DAY being 1 to 7: each
# replaces that of a week before once it is complete. With an argument, it writes one and ends.
set -u
write() {
  file="/data/nightly-$(date -u +%u).backup"
  foremind db backup "$file" || echo "The backup failed; the next one is tried tomorrow." >&2
}
if [ $# -gt 0 ]; then
  write
  exit
fi
while true; do
  now=$(date -u +%s)
  at=$(date -u -d "$BACKUP_AT" +%s)
  [ "$at" -gt "$now" ] || at=$((at + 86400))
  sleep $((at - now))
  write
done
