#!/usr/bin/env bash
# The graph models: exported, checked against PyTorch, timed beside the peers.
#
#   tests/bench/graph.sh --export [--models a,b]   writes them (torch is needed)
#   tests/bench/graph.sh --check [ARGS]            all models, forms and inputs
#   tests/bench/graph.sh --sweep [names] [ARGS]    many more networks
#   tests/bench/graph.sh --ort [ops] [ARGS]        operators of com.microsoft
#   tests/bench/graph.sh --bench [ARGS]            beside PyTorch and others
#   tests/bench/graph.sh --start [ARGS]            first result and peak memory
#   tests/bench/graph.sh --bf16 [ARGS]             bf16 beside OpenVINO's own
#                                                  precision, and our f32
#   tests/bench/graph.sh --int8 [ARGS]             int8 beside int8, and our f32;
#                                                  the first run writes the models
#   tests/bench/graph.sh --qkv [ARGS]              three products beside one of
#                                                  joined weights
#
# PEERS_VENV is a Python with torch, torchvision, timm, transformers, onnx and
# onnxruntime; GRAPH_MODELS the folder of the models. See tests/bench/graph/.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
venv=${PEERS_VENV:-$cache/venv/graph}
models=${GRAPH_MODELS:-$cache/graph_models}
millrace=${MILLRACE:-$repo/build/release/bin/millrace}
here=$repo/tests/bench/graph

action=${1:---help}
shift || true
case $action in
  --export) exec "$venv/bin/python" "$here/export_models.py" "$models" "$@" ;;
  --sweep) exec "$venv/bin/python" "$here/sweep.py" --millrace "$millrace" "$@" ;;
  --ort) exec "$venv/bin/python" "$here/ort_ops.py" --millrace "$millrace" "$@" ;;
  --qkv) exec "$venv/bin/python" "$here/qkv.py" --millrace "$millrace" "$@" ;;
  --check) exec python3 "$here/check.py" "$models" --millrace "$millrace" "$@" ;;
  --bench) exec "$venv/bin/python" "$here/bench.py" "$models" --cmd \
    "millrace=$millrace run {dir}/{model}.pt2 --input {dir}/{model}.b{batch}.inputs.npz --iters {iters} --threads {threads}" \
    "$@" ;;
  --start) exec "$venv/bin/python" "$here/start.py" "$models" \
    --millrace "$millrace" "$@" ;;
  --bf16) exec "$venv/bin/python" "$here/bench.py" "$models" \
    --peers ov-def --cmd \
    "millrace-bf16=$millrace run {dir}/{model}.pt2 --input {dir}/{model}.b{batch}.inputs.npz --expect {dir}/{model}.b{batch}.expected.npz --tol 1 --iters {iters} --threads {threads} --precision bf16" \
    --cmd \
    "millrace-f32=$millrace run {dir}/{model}.pt2 --input {dir}/{model}.b{batch}.inputs.npz --iters {iters} --threads {threads}" \
    "$@" ;;
  --int8) exec "$venv/bin/python" "$here/bench.py" "$models" \
    --peers ort-int8,ov-int8,ov-def --cmd \
    "millrace-int8=$millrace run {dir}/{model}.int8.onnx --input {dir}/{model}.b{batch}.inputs.npz --expect {dir}/{model}.b{batch}.expected.npz --tol 1 --iters {iters} --threads {threads}" \
    --cmd \
    "millrace-f32=$millrace run {dir}/{model}.onnx --input {dir}/{model}.b{batch}.inputs.npz --iters {iters} --threads {threads}" \
    "$@" ;;
  -h | --help) sed -n '2,20s/^# \{0,1\}//p' "$0" ;;
  *) echo "graph.sh: there is no action $action; see --help" >&2; exit 2 ;;
esac
