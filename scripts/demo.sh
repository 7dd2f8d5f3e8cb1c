#!/usr/bin/env bash
# The main job on real documents; started by `./x demo`, which has built the program and fetched the models.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${RIVERRUN:?started by ./x demo}" "${RIVERRUN_DATA_DIR:?}" "${RIVERRUN_DEFAULT_CHAT_MODEL:?}"
export RIVERRUN_DATA_DIR RIVERRUN_DEFAULT_CHAT_MODEL

QUESTION="What does a winch launch cost, and what does the two-seater cost per minute?"
TASK="A winch launch costs 12 euros and the two-seater costs 0.60 euros per minute. What does one launch with 40 minutes of flight cost? Use the calculator for 12 + 40 * 0.60."

show() { printf '\n\033[1m$ riverrun %s\033[0m\n' "$(printf '%q ' "$@" | sed 's/\\ / /g')"; "$RIVERRUN" "$@"; }

# The folder is the demo's own: only what an earlier demo left is in it.
case "$RIVERRUN_DATA_DIR" in */riverrun/demo) rm -rf "$RIVERRUN_DATA_DIR" ;; esac

show ingest examples/handbook -c handbook
show rag ask "$QUESTION" -c handbook
show agent run "$TASK" --agent react --steps

bin="$HOME/.local/bin"
mkdir -p "$bin"
ln -sf "$RIVERRUN" "$bin/riverrun"
printf '\n\033[1mGo on with\033[0m\n\n'
case ":$PATH:" in *":$bin:"*) ;; *) echo "  export PATH=\"$bin:\$PATH\"" ;; esac
cat <<TEXT
  export RIVERRUN_MODELS_DIR=$RIVERRUN_MODELS_DIR RIVERRUN_DEFAULT_CHAT_MODEL=$RIVERRUN_DEFAULT_CHAT_MODEL
${RIVERRUN_MODELS_OFFLINE:+  export RIVERRUN_MODELS_OFFLINE=$RIVERRUN_MODELS_OFFLINE   # no hub answers: nothing is asked of it
}  export RIVERRUN_DATA_DIR=$RIVERRUN_DATA_DIR   # what the demo ingested; unset it to begin with nothing
  riverrun diagnose
  riverrun rag ask "Who decides whether we fly?" -c handbook
  riverrun serve                                # HTTP and WebSocket on 127.0.0.1:8000, Kafka on 127.0.0.1:9092
  kcat -b 127.0.0.1:9092 -L                     # in another shell, while it serves: the topics
TEXT
