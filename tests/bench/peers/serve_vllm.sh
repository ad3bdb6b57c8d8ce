#!/usr/bin/env bash
# vLLM on CPU with the default model's weights as bf16 (it has no Q4_1 there).
#   serve_vllm.sh [--port 8091] [--parallel 64] [--ctx 2048] [--kv-gib 2]
# Needs setup.sh --vllm and PEERS_VENV. The first start compiles for minutes.
set -euo pipefail
port=8091 parallel=64 ctx=2048 kv=2
while [ $# -gt 0 ]; do
  case $1 in
    --port) port=$2 ;;
    --parallel) parallel=$2 ;;
    --ctx) ctx=$2 ;;
    --kv-gib) kv=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
export VLLM_CPU_KVCACHE_SPACE=$kv HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
venv=$PEERS_VENV-vllm
cd /
exec "$venv/bin/python" -m vllm.entrypoints.openai.api_server \
  --model "$venv/models/smollm2-bf16" --served-model-name model \
  --host 127.0.0.1 --port "$port" --max-model-len "$ctx" \
  --max-num-seqs "$parallel" --dtype bfloat16
