#!/usr/bin/env bash
# A system of processes: an API that hosts the log and has no workers, and a process of each kind of workers that documents and runs need.
# Everything else lies on servers: RIVERRUN_DATABASE_URL, RIVERRUN_QDRANT_URL and RIVERRUN_S3_BUCKET with its companions are set before.
# Needs `riverrun` in PATH, or its path in RIVERRUN, and curl.
#   examples/cluster.sh
set -euo pipefail
: "${RIVERRUN_DATABASE_URL:?docs/servers.md}" "${RIVERRUN_QDRANT_URL:?docs/servers.md}" "${RIVERRUN_S3_BUCKET:?docs/servers.md}"
riverrun=${RIVERRUN:-riverrun}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
processes=()
trap 'kill "${processes[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT

start() { RIVERRUN_DATA_DIR="$work/$1" "$riverrun" "${@:2}" >"$work/$1.log" 2>&1 & processes+=($!); }

api="http://127.0.0.1:${RIVERRUN_API_PORT:-8000}"
RIVERRUN_INGEST_ROOTS="$here" start api serve --no-workers --host-log
for _ in $(seq 300); do
  curl -sf "$api/health" >/dev/null && break
  kill -0 "${processes[0]}" 2>/dev/null || { cat "$work/api.log" >&2; exit 1; }
  sleep 0.2
done

export RIVERRUN_KAFKA_BROKERS=127.0.0.1:${RIVERRUN_BROKER_PORT:-9092}
for kind in ingester embedder indexer agent analyzer projector; do start "$kind" worker "$kind"; done

# Commands find the API by its data folder. What is asked for before a worker is there waits on the log.
export RIVERRUN_DATA_DIR="$work/api"
"$riverrun" ingest "$here/handbook" -c cluster-handbook
"$riverrun" search "What does a winch launch cost?" -c cluster-handbook
"$riverrun" agent run "What is 17% of 230?" --steps
