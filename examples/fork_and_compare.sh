#!/usr/bin/env bash
# Runs a task, then branches off it with another task, and shows both side by side.
#   examples/fork_and_compare.sh [RIVERRUN]
set -euo pipefail
riverrun=${1:-riverrun}

run=$("$riverrun" --json agent run "What is 12 * 7?" --agent react | python3 -c 'import json, sys; print(json.load(sys.stdin)["run_id"])')
"$riverrun" runs fork "$run" --at-seq 0 --task "What is 12 * 8?" --watch
"$riverrun" runs tree "$run"
fork=$("$riverrun" --json runs tree "$run" | python3 -c 'import json, sys; print(json.load(sys.stdin)["items"][-1]["run_id"])')
"$riverrun" runs compare "$run" "$fork"
