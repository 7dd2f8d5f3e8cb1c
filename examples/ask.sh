#!/usr/bin/env bash
# Asks a running `riverrun serve` a question about a collection and prints the answer with its sources.
#   examples/ask.sh "What does a winch launch cost?" handbook
set -euo pipefail

base=${RIVERRUN_URL:-http://127.0.0.1:8000}
query=${1:?usage: ask.sh QUESTION [COLLECTION]}
collection=${2:-handbook}

body=$(python3 -c 'import json, sys; print(json.dumps({"query": sys.argv[1], "collection": sys.argv[2]}))' "$query" "$collection")
curl -sS --fail-with-body -H 'content-type: application/json' -d "$body" "$base/rag/ask" |
  python3 -c '
import json, sys
reply = json.load(sys.stdin)
print(reply["answer"])
for c in reply["citations"]:
    span = c["span"]
    print("[{}] {} bytes {}..{}".format(c["n"], c["source"], span["start"], span["end"]))'
