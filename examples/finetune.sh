#!/bin/sh
# Teach a small model a format on the CPU: a dataset, an estimate, a short training, the registry, and a question to what came out.
set -eu
riverrun=${RIVERRUN:-riverrun}
base=${BASE_MODEL:-smollm2-135m-instruct}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for city in Paris Rome Oslo Lima Cairo Delhi Quito Accra Hanoi Kyiv Seoul Sofia; do
    printf '{"prompt": "Name a city: %s", "completion": "CITY=%s;"}\n' "$city" "$city"
done > "$dir/cities.jsonl"
"$riverrun" finetune dataset cities --jsonl "$dir/cities.jsonl" --base-model "$base"
"$riverrun" finetune train --dataset cities --name cities --base-model "$base" --max-steps "${STEPS:-20}" --batch-size 2 --seq-len 128 --estimate
"$riverrun" finetune train --dataset cities --name cities --base-model "$base" --max-steps "${STEPS:-20}" --batch-size 2 --seq-len 128 --learning-rate 1e-3
"$riverrun" finetune jobs
"$riverrun" finetune registry
"$riverrun" chat --provider local --model cities@1 --temperature 0 --max-tokens 20 "Name a city: Vienna"
