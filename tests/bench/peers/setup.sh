#!/usr/bin/env bash
# The peers' virtual environment, in the cache: llama.cpp's own server (the
# xllamacpp wheel) and the load client. Safe to run again; prints its Python.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
venv=${PEERS_VENV:-$cache/venv/peers}
if ! [ -f "$venv/.ready" ] || ! cmp -s "$here/requirements.txt" "$venv/.ready"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt" >&2
  cp "$here/requirements.txt" "$venv/.ready"
fi
echo "$venv/bin/python"
