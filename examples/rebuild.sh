#!/bin/sh
# Keywords and vectors of a collection are thrown away and made again from the log: nothing is read from its sources.
# Usage: examples/rebuild.sh   (needs `riverrun` in the PATH, or its path in RIVERRUN, and no server on the data folder)
set -eu
riverrun=${RIVERRUN:-riverrun}

here=$(dirname "$0")

"$riverrun" ingest "$here/handbook" -c lost
"$riverrun" search "what does a winch launch cost" -c lost -k 1

rm -r "${RIVERRUN_DATA_DIR:-$HOME/.local/share/riverrun}/vectors/default__lost"
# A start sees that it is gone and begins to make it again by itself: the command may find nothing left to write.
"$riverrun" collections rebuild lost
"$riverrun" search "what does a winch launch cost" -c lost -k 1
"$riverrun" collections check lost

"$riverrun" collections rebuild lost --afresh
"$riverrun" collections check lost
