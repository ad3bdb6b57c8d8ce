#!/usr/bin/env bash
# The server around graphs, in tables: what it adds to a request beside a bare
# echo over the same libraries, models under dynamic batching beside the bare
# runtime and beside Triton, a minute of overload, and models that come and go
# under load.
#
#   tests/bench/serving.sh [--rounds N] [--seconds N] [--cycles N]
#       [--only identity|models|overload|cycles|pinning|torchserve ...]
#
# GRAPH_MODELS is the folder of tests/bench/graph.sh --export, PEERS_VENV a
# Python with onnx, TRITON_VENV one with nvidia-pytriton and onnxruntime (without
# it Triton's columns are left out). torchserve, which is measured only when it is
# named, needs torchserve, torch-model-archiver and a Java runtime.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
case ${1:-} in
  -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit ;;
esac
lscpu | grep -E 'Model name|^CPU\(s\)'; uptime
exec "${PEERS_VENV:-$cache/venv/graph}/bin/python" -B "$repo/tests/bench/serving/serving.py" "$@"
