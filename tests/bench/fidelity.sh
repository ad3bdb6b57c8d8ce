#!/usr/bin/env bash
# The whole golden set, then our production numbers beside llama.cpp's, both
# against our f32 engine. Takes minutes and 0.9 GB in $TMPDIR.
#
#   tests/bench/fidelity.sh                  with llama.cpp (its wheel, from PyPI)
#   tests/bench/fidelity.sh --no-llamacpp    ours alone
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
model=${MODEL:-$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}
python=$("$repo/tests/bench/peers/setup.sh")
cmake --build "$repo/build/release" --target dump_logits >/dev/null
exec "$python" "$repo/tests/bench/fidelity.py" "$model" \
  --dump "$repo/build/release/bin/dump_logits" \
  --golden "$repo/tests/golden/llm/logits.json" --threads "$(nproc)" "$@"
