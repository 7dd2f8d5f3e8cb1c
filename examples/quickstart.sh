#!/usr/bin/env bash
# The main job over HTTP, against a running `riverrun serve`: ingest a folder, ask, run an agent.
#   examples/quickstart.sh [FOLDER]
# A folder of yours must lie below one that the server may read: RIVERRUN_INGEST_ROOTS=FOLDER riverrun serve
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/http.sh"
folder=$(cd "${1:-$here/handbook}" && pwd)

# Until it is none of the words any more: ended PATH WORD...
ended() {
  local path=$1 reply status
  shift
  for _ in $(seq 600); do
    reply=$(ask "$path") || return 1
    status=$(field status <<<"$reply")
    case " $* " in *" $status "*) sleep 0.5 ;; *) break ;; esac
  done
  printf '%s' "$reply"
}

echo "ingesting $folder"
body=$(python3 -c 'import json, sys; print(json.dumps({"source": sys.argv[1], "collection": "handbook"}))' "$folder")
accepted=$(post /ingest "$body")
ingest=$(ended "/ingest/$(field ingest_id <<<"$accepted")" queued running)
status=$(field status <<<"$ingest")
echo "ingest $(field ingest_id <<<"$ingest"): $status"
[ "$status" != failed ] || { field error <<<"$ingest" >&2; exit 1; }

echo "asking"
"$here/ask.sh" "What does a winch launch cost?" handbook

echo "running an agent"
accepted=$(post /runs '{"task": "What is 12 + 40 * 0.6? Use the calculator.", "agent": "react"}')
run=$(ended "/runs/$(field run_id <<<"$accepted")" queued running waiting_approval)
status=$(field status <<<"$run")
echo "run $(field run_id <<<"$run"): $status"
[ "$status" = succeeded ] || { field error <<<"$run" >&2; exit 1; }
field answer <<<"$run"
