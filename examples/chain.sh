#!/usr/bin/env bash
# Starts two runs of which the second waits for the answer of the first, shows both by the id of their chain, and how they hang together.
# A server must be running: riverrun serve
#   examples/chain.sh [RIVERRUN]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/http.sh"
riverrun=${1:-${RIVERRUN:-riverrun}}

started=$(post /chains '{"runs": [
  {"name": "count", "run": {"task": "What is 17% of 230?", "agent": "react"}},
  {"name": "tell", "after": ["count"], "run": {"task": "Say it in one sentence: {{input}}", "agent": "react"}}]}')
chain=$(field chain_id <<<"$started")
"$riverrun" chains watch "$chain"
"$riverrun" chains show "$chain"
run=$("$riverrun" --json chains show "$chain" | field runs.0.run_id)
"$riverrun" runs tree "$run"
