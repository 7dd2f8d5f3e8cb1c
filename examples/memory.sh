#!/usr/bin/env bash
# A conversation with a running `riverrun serve`: record, recall, see where a memory comes from, forget.
#   examples/memory.sh [SESSION]
set -euo pipefail

base=${RIVERRUN_URL:-http://127.0.0.1:8000}
session=${1:-example-$$}
where="namespace=examples&session=$session"

field() { python3 -c 'import json, sys; print(eval("json.load(sys.stdin)" + sys.argv[1]))' "$1"; }
say() {
  local body
  body=$(python3 -c 'import json, sys; print(json.dumps(dict(zip(("role", "text", "namespace", "session"), sys.argv[1:]))))' "$1" "$2" examples "$session")
  curl -sS --fail-with-body -H 'content-type: application/json' -d "$body" "$base/memory/turns"
}

first=$(say user "My glider is a Ka 8 and stands in hangar 3." | field '["turn_id"]')
say assistant "Noted: a Ka 8, hangar 3." >/dev/null
say user "Let us talk about the weather." >/dev/null
echo "recorded, first turn $first"

echo "what a model is shown:"
curl -sS --fail-with-body "$base/memory/context?$where&query=where+is+my+glider" | field '["turns"][0]["text"]'

echo "where it comes from:"
curl -sS --fail-with-body "$base/memory/why?$where&id=$first" | field '["sources"][0]["text"]'

echo "a receipt of what is forgotten:"
curl -sS --fail-with-body -X DELETE "$base/memory?$where&id=$first" | field '["removed"]'
curl -sS --fail-with-body -X DELETE "$base/memory?$where" | field '["removed"]["turns"]'
