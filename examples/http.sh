# shellcheck shell=bash
# How the examples ask a server over HTTP; they source it. It wants curl and python3.
# RIVERRUN_URL names the server, RIVERRUN_API_TOKEN the token where it wants one.
base=${RIVERRUN_URL:-http://127.0.0.1:8000}

# ask PATH [CURL ARGUMENT...]: the answer. Where the server refuses, what it says of it; where there is none, how to start one.
ask() {
  local path=$1 answer status=0
  shift
  # By a file and not as an argument, which others on the machine could read.
  answer=$(curl -sS --fail-with-body --config <(token_header) "$@" "$base$path" 2>&1) || status=$?
  case $status in
    0) printf '%s\n' "$answer" ;;
    7)
      echo "no server answers at $base: start one with \`riverrun serve\`, or name its address in RIVERRUN_URL" >&2
      return 1
      ;;
    *)
      refusal <<<"$answer" >&2
      return 1
      ;;
  esac
}

# post PATH JSON: the same, with a body.
post() { ask "$1" -H 'content-type: application/json' -d "$2"; }

# field NAME[.NAME...]: that of the JSON object on standard input; nothing where it is null.
field() {
  python3 -c '
import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."):
    value = (value[int(name)] if name.isdigit() else value.get(name)) if value else None
print("" if value is None else value)' "$1"
}

token_header() { [ -z "${RIVERRUN_API_TOKEN:-}" ] || printf 'header = "authorization: Bearer %s"\n' "$RIVERRUN_API_TOKEN"; }

refusal() {
  python3 -c '
import json, sys
said = sys.stdin.read()
try:
    problem = json.loads(said[said.index("{"):said.rindex("}") + 1])
    print("refused:", problem["detail"], *(["\nhint:", problem["hint"]] if problem.get("hint") else []))
except (ValueError, KeyError):
    print("refused:", said.strip())'
}
