#!/bin/sh
# See which linters analyses would use, install one into the data folder (from the package registry that pip is set up for), use it, and
# remove it again. Nothing outside of the data folder changes.
set -eu
riverrun=${RIVERRUN:-riverrun}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$riverrun" project tools ls
"$riverrun" project tools install ruff
printf 'import os\n\nprint(undefined_name)\n' > "$dir/a.py"
id=$("$riverrun" project import "$dir" | cut -d' ' -f1)
"$riverrun" project analyze "$id" --no-review
"$riverrun" project rm "$id"
"$riverrun" project tools rm ruff
