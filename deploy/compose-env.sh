#!/usr/bin/env bash
# Draws the passwords and the token that docker-compose.yml wants: deploy/compose-env.sh >.env
# The token goes to stderr, once; the file has its hash only.
set -euo pipefail

draw() { od -An -tx1 -N "${1:-24}" /dev/urandom | tr -d ' \n'; }

token="rr_$(draw 32)"
tables="rr_$(draw 32)"
hash_of() { printf %s "$1" | sha256sum | cut -d' ' -f1; }
cat <<TEXT
API_TOKENS=admin:$(hash_of "$token"),tables:$(hash_of "$tables"):read
WAREHOUSE_TOKEN=$tables
POSTGRES_PASSWORD=$(draw)
REDIS_PASSWORD=$(draw)
MONGODB_PASSWORD=$(draw)
CLICKHOUSE_PASSWORD=$(draw)
MINIO_PASSWORD=$(draw)
GRAFANA_PASSWORD=$(draw)
LANGFUSE_SALT=$(draw)
LANGFUSE_ENCRYPTION_KEY=$(draw 32)
LANGFUSE_NEXTAUTH_SECRET=$(draw)
LANGFUSE_PUBLIC_KEY=pk-lf-$(draw 16)
LANGFUSE_SECRET_KEY=sk-lf-$(draw 16)
# With the profiles tracing and models:
#TRACING_ENDPOINT=http://langfuse:3000
#MODEL_RUNTIME_BASE_URL=http://ollama:11434
# With the profile cluster-tables (and --scale ingester=0):
#WAREHOUSE_URL=http://tables:8000
# The folder that POST /ingest may read:
#DOCUMENTS=./examples
TEXT
echo "the token of the API, which is shown only now: $token" >&2
