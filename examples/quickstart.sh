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
body=$(python3 -c 'import json, sys; print(json.dumps({"source": sys.argv[1], "collection": "handbook"}))' "$folder")
ingest=$(post /ingest "$body" | field ingest_id)
for _ in $(seq 600); do
  status=$(curl -sS --fail-with-body "$base/ingest/$ingest" | field status)
  case "$status" in queued | running) sleep 0.5 ;; *) break ;; esac
done
echo "ingest $ingest: $status"
[ "$status" != failed ] || { curl -sS "$base/ingest/$ingest" | field error >&2; exit 1; }

echo "asking"
RIVERRUN_URL=$base "$here/ask.sh" "What does a winch launch cost?" handbook

echo "running an agent"
run=$(post /runs '{"task": "What is 12 + 40 * 0.6? Use the calculator.", "agent": "react"}' | field run_id)
for _ in $(seq 600); do
  status=$(curl -sS --fail-with-body "$base/runs/$run" | field status)
  case "$status" in queued | running | waiting_approval) sleep 0.5 ;; *) break ;; esac
done
echo "run $run: $status"
[ "$status" = succeeded ] || { curl -sS "$base/runs/$run" | field error >&2; exit 1; }
curl -sS --fail-with-body "$base/runs/$run" | field answer
