#!/bin/sh
# Chunks counted in tokens, chunks embedded within their document, and another embedding model for a collection.
# Usage: examples/reembed.sh   (needs `riverrun` in the PATH, or its path in RIVERRUN, and both models: `riverrun models pull all-minilm-l6-v2`)
set -eu
riverrun=${RIVERRUN:-riverrun}

here=$(dirname "$0")

"$riverrun" ingest "$here/handbook" -c in-tokens --chunk-unit tokens --chunk-size 120 --chunk-overlap 15
"$riverrun" search "what does a winch launch cost" -c in-tokens -k 1

"$riverrun" ingest "$here/handbook" -c in-context --strategy late
"$riverrun" search "what does a winch launch cost" -c in-context -k 1

"$riverrun" ingest "$here/handbook" -c renewed
"$riverrun" collections reembed renewed --model all-minilm-l6-v2
"$riverrun" search "what does a winch launch cost" -c renewed -k 1
"$riverrun" collections check renewed
