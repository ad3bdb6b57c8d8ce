#!/usr/bin/env bash
# The whole table of language-model figures on this machine, peers beside us:
# Markdown, JSON and a plot in build/bench. Needs a quiet machine and about two
# hours (an hour without vLLM).
#
#   tests/bench/llm.sh                       everything, llama.cpp as peer
#   tests/bench/llm.sh --vllm                and vLLM for CPU (6 GB to install)
#   tests/bench/llm.sh --only engine,http --rounds 3
#   MODELS="a.gguf b.gguf" tests/bench/llm.sh
#
# More flags: see tests/bench/llm/run.py --help.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
default=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
setup=()
[[ " $* " = *" --vllm "* ]] && setup+=(--vllm)
python=$("$repo/tests/bench/peers/setup.sh" "${setup[@]}")
export PEERS_VENV=$(dirname "$(dirname "$python")")
# The same model in 8 bits: made once from the default file.
eight=$cache/models/SmolLM2-135M-Instruct.Q8_0.gguf
[ -s "$eight" ] || "$python" "$repo/tests/bench/peers/requantize.py" "$default" "$eight" Q8_0
qwen=$cache/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
models=(${MODELS:-$default $eight $([ ! -s "$qwen" ] || echo "$qwen")})
exec nice -n -15 "$python" "$repo/tests/bench/llm/run.py" "${models[@]}" \
  --millrace "$repo/build/release/bin/millrace" --peers-venv "$PEERS_VENV" \
  --out "$repo/build/bench" "$@"
