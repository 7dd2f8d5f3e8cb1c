#!/usr/bin/env bash
# Starts two runs of which the second waits for the answer of the first, shows both by the id of their chain, and how they hang together.
# A server must be running: riverrun serve
#   examples/chain.sh [RIVERRUN]
set -euo pipefail
riverrun=${1:-${RIVERRUN:-riverrun}}
base=${RIVERRUN_URL:-http://127.0.0.1:8000}

chain=$(curl -sS --fail-with-body "$base/chains" -H 'content-type: application/json' -d '{"runs": [
  {"name": "count", "run": {"task": "What is 17% of 230?", "agent": "react"}},
  {"name": "tell", "after": ["count"], "run": {"task": "Say it in one sentence: {{input}}", "agent": "react"}}]}' |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["chain_id"])')
"$riverrun" chains watch "$chain"
"$riverrun" chains show "$chain"
run=$("$riverrun" --json chains show "$chain" | python3 -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["run_id"])')
"$riverrun" runs tree "$run"
