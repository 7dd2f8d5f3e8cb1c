#!/bin/sh
# Import code into an isolated copy, analyze it without a model, show the report, keep it as SARIF and as a page, and remove the copy.
set -eu
riverrun=${RIVERRUN:-riverrun}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/train.py" <<'PY'
from sklearn.preprocessing import StandardScaler

X = StandardScaler().fit_transform(X)
parts = train_test_split(X, y)
PY
id=$("$riverrun" project import "$dir" | cut -d' ' -f1)
"$riverrun" project analyze "$id" --no-review
"$riverrun" project report "$id"
"$riverrun" project report "$id" --sarif "$dir/report.sarif"
"$riverrun" project report "$id" --html "$dir/report.html"
"$riverrun" project trend "$id"
"$riverrun" project rm "$id"
