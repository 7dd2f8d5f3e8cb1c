#!/bin/sh
# Rows as a table and as documents: ingest a CSV file, ask with SQL, find by words, remove it again.
set -eu
riverrun=${RIVERRUN:-riverrun}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/launches.csv" <<'CSV'
day,kind,pilot,minutes,fee
2024-05-01,winch,Ann,12,7.50
2024-05-01,aerotow,Bo,31,38.00
2024-05-02,winch,Ann,9,7.50
2024-05-02,winch,"Cy, jr.",55,7.50
CSV
"$riverrun" ingest "$dir/launches.csv" -c launches --table launches
"$riverrun" warehouse tables
"$riverrun" warehouse query "SELECT kind, count(*) AS launches, sum(fee) AS fees FROM launches GROUP BY kind ORDER BY kind"
"$riverrun" search "aerotow" -c launches -k 1
"$riverrun" collections rm launches
