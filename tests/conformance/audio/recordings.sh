#!/usr/bin/env bash
# 200 recordings of many kinds, decoded, resampled and made spectrograms of,
# beside soundfile, soxr and transformers (recordings.py). Ends with 1 where one
# differs. Minutes; a virtual environment in the cache.
#
#   tests/conformance/audio/recordings.sh
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
venv=${AUDIO_VENV:-$cache/venv/audio}
if ! [ -e "$venv/.ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check \
    -r "$repo/tests/conformance/audio/requirements.txt" >&2
  touch "$venv/.ready"
fi
cmake --build "$repo/build/release" --target audio_rows >/dev/null
exec "$venv/bin/python" -B "$repo/tests/conformance/audio/recordings.py" \
  --rows "$repo/build/release/bin/audio_rows" "$@"
