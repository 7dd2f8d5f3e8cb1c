#!/usr/bin/env bash
# A run that asks before each tool call, answered over HTTP. Needs a running `riverrun serve`, curl and python3.
#   examples/approvals.sh [URL]
set -euo pipefail
url=${1:-${RIVERRUN_URL:-http://127.0.0.1:8000}}

field() { python3 -c 'import json, sys; value = json.load(sys.stdin)
for name in sys.argv[1].split("."): value = (value[int(name)] if name.isdigit() else value.get(name)) if value else None
print("" if value is None else value)' "$1"; }

run=$(curl -fsS "$url/runs" -H 'content-type: application/json' \
  -d '{"task": "What is 17% of 230? Use the calculator.", "agent": "react", "approval": "always"}' | field run_id)
echo "run $run"
while status=$(curl -fsS "$url/runs/$run" | field status); [[ $status != succeeded && $status != failed && $status != cancelled ]]; do
  if [ "$status" = waiting_approval ]; then
    waits=$(curl -fsS "$url/runs/$run")
    step=$(field pending_approvals.0.step <<<"$waits")
    if [ -n "$step" ]; then
      field pending_approvals.0.reason <<<"$waits"
      # The first answer counts; asking again before the run has moved on would be answered with 409.
      curl -sS -o /dev/null "$url/runs/$run/approvals/$step" -H 'content-type: application/json' -d '{"decision": "approve"}'
    fi
  fi
  sleep 0.5
done
[ "$status" = succeeded ] || { echo "run $run: $status" >&2; exit 1; }
curl -fsS "$url/runs/$run" | field answer
