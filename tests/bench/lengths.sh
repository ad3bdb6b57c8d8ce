#!/usr/bin/env bash
# What lengths cost that a graph did not see before: 200 random lengths, then
# the same again, and the ratio of both. Wanted: 1.15 at most.
#
#   tests/bench/lengths.sh [THREADS [COUNT [MOST]]]
#
# MiniLM of tests/bench/graph.sh --export, and a small T5 encoder with random
# weights; both in f32 and as onnxruntime's quantize_dynamic makes them. The
# first run writes the models. PEERS_VENV is a Python with torch, transformers,
# onnx and onnxruntime; GRAPH_MODELS the folder of the models.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
venv=${PEERS_VENV:-$cache/venv/graph}
models=${GRAPH_MODELS:-$cache/graph_models}
bench=${LENGTHS_BENCH:-$repo/build/release/bin/lengths_bench}

case ${1:-} in
  -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit ;;
esac
names=(minilm.ts minilm.dynamic t5_encoder t5_encoder.dynamic)
for name in "${names[@]}"; do
  if [[ ! -f $models/$name.onnx ]]; then
    "$venv/bin/python" "$repo/tests/bench/lengths/make_models.py" "$models"
    break
  fi
done
for name in "${names[@]}"; do
  "$bench" "$models/$name.onnx" "$@"
done
