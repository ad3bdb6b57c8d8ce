#!/usr/bin/env bash
# Token streams with TLS beside the same without, by turns: tokens/s of each round
# and the ratio of the medians. Server and client share the machine, so the client
# pays for TLS, too.
#
#   tests/bench/tls.sh [ROUNDS]     default 7
#
# STREAMS (16), TOKENS (64) and BIN (build/release/bin) may be set.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rounds=${1:-7}
bin=${BIN:-$repo/build/release/bin}
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
work=$(mktemp -d)
trap 'kill $plain $secure 2>/dev/null; wait; rm -rf "$work"' EXIT
plain= secure=

lscpu | grep -E 'Model name|^CPU\(s\)'; uptime
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
  -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
serve() { exec "$bin/millrace" serve "llm=$model" --grpc-port -1 --log-level warning "$@"; }
serve --http-port 8098 & plain=$!
serve --http-port 8099 --ssl-certfile "$work/cert.pem" \
  --ssl-keyfile "$work/key.pem" & secure=$!

# tokens_per_second URL
tokens_per_second() {
  "$bin/millrace-loadtest" --url "$1" --cacert "$work/cert.pem" --model llm \
    --streaming --concurrency "${STREAMS:-16}" -n $((${STREAMS:-16} * 4)) \
    --warmup "${STREAMS:-16}" --input-tokens 32 --output-tokens "${TOKENS:-64}" \
    --no-progress --json "$work/report.json" >/dev/null
  python3 - "$work/report.json" <<'PY'
import json, sys
print(json.load(open(sys.argv[1]))["output_token_throughput"])
PY
}
for url in http://localhost:8098 https://localhost:8099; do
  for _ in $(seq 300); do
    curl -fsk "$url/health" >/dev/null 2>&1 && break
    sleep 0.1
  done
done
for ((i = 0; i < rounds; ++i)); do
  echo "$(tokens_per_second http://localhost:8098)" \
    "$(tokens_per_second https://localhost:8099)" | tee -a "$work/rates"
done
python3 - "$work/rates" <<'PY'
import statistics, sys
rows = [tuple(map(float, line.split())) for line in open(sys.argv[1])]
plain, secure = (sorted(column) for column in zip(*rows))
middle = statistics.median
print(f"plain {middle(plain):.0f} tokens/s ({plain[0]:.0f} to {plain[-1]:.0f}),"
      f" TLS {middle(secure):.0f} ({secure[0]:.0f} to {secure[-1]:.0f}), ratio "
      f"{middle(secure) / middle(plain):.3f}, of single rounds "
      f"{middle(b / a for a, b in rows):.3f}")
PY
