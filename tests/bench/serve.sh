#!/usr/bin/env bash
# Millrace beside llama.cpp's server on this machine: the same requests, rounds
# taking turns. Prints a table; everything after -- goes to bench_server.py.
#
#   tests/bench/serve.sh                      short prompts, 1 and 16 streams
#   tests/bench/serve.sh --cold               cold start and memory instead
#   tests/bench/serve.sh -- --workloads long --concurrency 4
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
model=${MODEL:-$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}
parallel=${PARALLEL:-16}
python=$("$repo/tests/bench/peers/setup.sh")
ours=("$repo/build/release/bin/millrace" serve "$model" --http-port 8098
  --grpc-port -1 --log-level warning ${MILLRACE_FLAGS:-})
theirs=("$python" "$repo/tests/bench/peers/serve_llamacpp.py" "$model"
  --port 8099 --parallel "$parallel")

lscpu | grep -E 'Model name|^CPU\(s\)' ; uptime
if [ "${1:-}" = --cold ]; then
  for _ in 1 2 3; do
    echo -n "millrace   "
    "$python" "$repo/tests/bench/peers/cold_start.py" --load 16 \
      --model "$(basename "$model" .gguf)" --url http://127.0.0.1:8098 -- "${ours[@]}"
    echo -n "llama.cpp  "
    "$python" "$repo/tests/bench/peers/cold_start.py" --load 16 \
      --url http://127.0.0.1:8099 -- "${theirs[@]}"
  done
  exit
fi
[ "${1:-}" = -- ] && shift
[ $# -gt 0 ] || set -- --workloads short --concurrency 1,16 --rounds 5

"${ours[@]}" & a=$!
"${theirs[@]}" >/dev/null 2>&1 & b=$!
trap 'kill $a $b 2>/dev/null; wait' EXIT
for url in http://127.0.0.1:8098 http://127.0.0.1:8099; do
  for _ in $(seq 300); do curl -fs "$url/health" >/dev/null 2>&1 && break; sleep 0.1; done
done
"$python" "$repo/tests/bench/peers/bench_server.py" \
  --url millrace=http://127.0.0.1:8098 --url llamacpp=http://127.0.0.1:8099 "$@"
