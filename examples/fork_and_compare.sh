#!/usr/bin/env bash
# Runs a task, then branches off it with another task, and shows both side by side.
#   examples/fork_and_compare.sh [RIVERRUN]
set -euo pipefail
riverrun=${1:-${RIVERRUN:-riverrun}}

run=$("$riverrun" --json agent run "What is 12 * 7?" --agent react | python3 -c 'import json, sys; print(json.load(sys.stdin)["run_id"])')
"$riverrun" runs fork "$run" --at-seq 0 --task "What is 12 * 8?" --watch
"$riverrun" runs tree "$run"
fork=$("$riverrun" --json runs tree "$run" | python3 -c 'import json, sys; print(next(one["run_id"] for one in json.load(sys.stdin)["items"] if one["run_id"] != sys.argv[1]))' "$run")
"$riverrun" runs compare "$run" "$fork"
