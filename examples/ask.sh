#!/usr/bin/env bash
# Asks a running `riverrun serve` a question about a collection and prints the answer with its sources.
#   examples/ask.sh "What does a winch launch cost?" handbook
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/http.sh"

query=${1:?usage: ask.sh QUESTION [COLLECTION]}
collection=${2:-handbook}

body=$(python3 -c 'import json, sys; print(json.dumps({"query": sys.argv[1], "collection": sys.argv[2]}))' "$query" "$collection")
reply=$(post /rag/ask "$body")
python3 -c '
import json, sys
reply = json.load(sys.stdin)
print(reply["answer"])
for c in reply["citations"]:
    span = c["span"]
    print("[{}] {} bytes {}..{}".format(c["n"], c["source"], span["start"], span["end"]))' <<<"$reply"
