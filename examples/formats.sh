#!/bin/sh
# Makes documents of several types, ingests their folder, streams one more, and finds each.
# Usage: examples/formats.sh   (needs `riverrun` in the PATH, or its path in RIVERRUN)
set -eu
riverrun=${RIVERRUN:-riverrun}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/prices.csv" <<'CSV'
Launch;Price;Height
Winch;9;400 m
"Aero tow";42,5;600 m
CSV
cat > "$folder/club.html" <<'HTML'
<html><head><title>The club</title><script>ignored()</script></head>
<body><h1>Opening hours</h1><p>The field is open from <b>9 to 19</b> on weekends.</p></body></html>
HTML
printf '%s\n' '{"glider": "ASK 21", "seats": 2}' '{"glider": "LS 4", "seats": 1}' > "$folder/fleet.jsonl"
printf 'From: ann@example.org\nSubject: Winch inspection\n\nThe cable was replaced on Tuesday.\n' > "$folder/mail.eml"

"$riverrun" ingest "$folder" -c formats
"$riverrun" search "price of an aero tow" -c formats -k 1
"$riverrun" search "when is the field open" -c formats -k 1
"$riverrun" search "two-seated glider" -c formats -k 1
"$riverrun" search "cable replaced" -c formats -k 1

# What is known of the bytes behind a document: type, size, hash, encoding, author, when they were fetched.
mail=$("$riverrun" docs ls -c formats | awk '/mail[.]eml/ { print $1 }')
"$riverrun" docs show "$mail"

"$riverrun" stream produce "The tow plane is in maintenance until Friday." --key tow-plane
"$riverrun" stream consume --collection formats --idle-timeout 3
"$riverrun" search "tow plane maintenance" -c formats -k 1
