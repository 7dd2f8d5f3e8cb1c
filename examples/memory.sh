#!/usr/bin/env bash
# A conversation with a running `riverrun serve`: record, recall, see where a memory comes from, forget.
#   examples/memory.sh [SESSION]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/http.sh"

session=${1:-example-$$}
where="namespace=examples&session=$session"

say() {
  local body
  body=$(python3 -c 'import json, sys; print(json.dumps(dict(zip(("role", "text", "namespace", "session"), sys.argv[1:]))))' "$1" "$2" examples "$session")
  post /memory/turns "$body"
}
# show FIELD PATH [CURL ARGUMENT...]
show() {
  local name=$1 reply
  shift
  reply=$(ask "$@")
  field "$name" <<<"$reply"
}

turn=$(say user "My glider is a Ka 8 and stands in hangar 3.")
first=$(field turn_id <<<"$turn")
say assistant "Noted: a Ka 8, hangar 3." >/dev/null
say user "Let us talk about the weather." >/dev/null
echo "recorded, first turn $first"

echo "what a model is shown:"
show turns.0.text "/memory/context?$where&query=where+is+my+glider"

echo "where it comes from:"
show sources.0.text "/memory/why?$where&id=$first"

echo "a receipt of what is forgotten:"
show removed "/memory?$where&id=$first" -X DELETE
show removed.turns "/memory?$where" -X DELETE
