#!/usr/bin/env bash
# Carries everything from one data folder to another and shows that it is there. Needs `riverrun` in PATH, or its path in RIVERRUN.
#   examples/move.sh
set -euo pipefail
riverrun=${RIVERRUN:-riverrun}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

at() { RIVERRUN_DATA_DIR="$work/$1" "$riverrun" "${@:2}"; }

at old memory add user "my boat is blue" -s harbour
at old export "$work/archive"
at new import "$work/archive"
# Lists are made again from the log: the first command on the new folder may be too early for them.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  at new memory turns -s harbour | grep "my boat is blue" && exit
  sleep 1
done
echo "the conversation did not arrive" >&2
exit 1
