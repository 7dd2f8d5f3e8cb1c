#!/usr/bin/env bash
# The main job over HTTP, against a running `riverrun serve`: ingest a folder, ask, run an agent.
#   examples/quickstart.sh [FOLDER]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
base=${RIVERRUN_URL:-http://127.0.0.1:8000}
folder=$(cd "${1:-$here/handbook}" && pwd)

post() { curl -sS --fail-with-body -H 'content-type: application/json' -d "$2" "$base$1"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

echo "ingesting $folder"
ingest=$(post /ingest "{\"source\": \"$folder\", \"collection\": \"handbook\"}" | field ingest_id)
for _ in $(seq 600); do
  status=$(curl -sS --fail-with-body "$base/ingest/$ingest" | field status)
  case "$status" in queued | running) sleep 0.5 ;; *) break ;; esac
done
echo "ingest $ingest: $status"

echo "asking"
RIVERRUN_URL=$base "$here/ask.sh" "What does a winch launch cost?" handbook

echo "running an agent"
run=$(post /runs '{"task": "What is 12 + 40 * 0.6? Use the calculator.", "agent": "react"}' | field run_id)
for _ in $(seq 600); do
  status=$(curl -sS --fail-with-body "$base/runs/$run" | field status)
  case "$status" in queued | running | waiting_approval) sleep 0.5 ;; *) break ;; esac
done
echo "run $run: $status"
curl -sS --fail-with-body "$base/runs/$run" | field answer
