#!/usr/bin/env bash
# Runs a canvas from a terminal: two agents in a row, the second works on the answer of the first.
#   examples/canvas/run.sh "17% of 230"
set -euo pipefail

canvas=$(dirname "$0")/explain.json
riverrun=${RIVERRUN:-riverrun}

"$riverrun" canvas check "$canvas"
"$riverrun" canvas run "$canvas" --task "${1:?usage: run.sh TASK}"
