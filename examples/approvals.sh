#!/usr/bin/env bash
# A run that asks before each tool call, answered over HTTP. Needs a running `riverrun serve`.
#   examples/approvals.sh [URL]
set -euo pipefail
RIVERRUN_URL=${1:-${RIVERRUN_URL:-http://127.0.0.1:8000}}
. "$(dirname "${BASH_SOURCE[0]}")/http.sh"

accepted=$(post /runs '{"task": "What is 17% of 230? Use the calculator.", "agent": "react", "approval": "always"}')
run=$(field run_id <<<"$accepted")
echo "run $run"
while
  now=$(ask "/runs/$run") || exit 1
  status=$(field status <<<"$now")
  [[ $status != succeeded && $status != failed && $status != cancelled ]]
do
  step=$(field pending_approvals.0.step <<<"$now")
  if [ "$status" = waiting_approval ] && [ -n "$step" ]; then
    field pending_approvals.0.reason <<<"$now"
    # The first answer counts; asking again before the run has moved on would be answered with 409.
    post "/runs/$run/approvals/$step" '{"decision": "approve"}' >/dev/null 2>&1 || true
  fi
  sleep 0.5
done
[ "$status" = succeeded ] || { echo "run $run: $status" >&2; exit 1; }
field answer <<<"$now"
